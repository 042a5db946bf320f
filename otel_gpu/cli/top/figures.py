"""What has each process done so far, and what does it hold? Series added up by process: CUDA's and HIP's alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from ...receivers.inference import metrics as requests
from ...signals import cuda, hardware, hip, self_metrics
from ...signals.metrics import AttributeValue, Buckets, Resource, Value
from ...signals.structs import Record

Labels = Mapping[str, AttributeValue]


class Reading(NamedTuple):
    """One series as it stands, wherever it was read."""

    resource: Resource
    name: str
    attributes: Labels
    value: Value


class Direction(NamedTuple):
    """From where to where bytes are copied, and how."""

    kind: str
    host_memory: str
    in_graph: bool


class Kernel(Record):
    """One kernel of one process."""

    launches: int = 0
    in_graphs: int = 0
    grid: Buckets = msgspec.field(default_factory=Buckets)
    block: Buckets = msgspec.field(default_factory=Buckets)


class ProcessFigures(Record):
    """What one process did since it was observed; what it holds now."""

    pid: int | None
    service: str
    container: str = ""
    pod: str = ""
    kernels: dict[str, Kernel] = msgspec.field(default_factory=dict)
    graph_launches: int = 0
    unexpanded: int = 0
    """Of these: what is in the graph, nobody saw."""
    copies: dict[Direction, Buckets] = msgspec.field(default_factory=dict)
    memory: dict[str, int] = msgspec.field(default_factory=dict)
    untracked: int | None = None
    waits: dict[str, Buckets] = msgspec.field(default_factory=dict)
    busy: dict[str, float] = msgspec.field(default_factory=dict)
    errors: dict[tuple[str, str], int] = msgspec.field(default_factory=dict)
    requests: Buckets = msgspec.field(default_factory=Buckets)
    request_launches: Buckets = msgspec.field(default_factory=Buckets)
    lost: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def launches(self) -> int:
        return sum(k.launches for k in self.kernels.values())

    @property
    def kernels_in_graphs(self) -> int:
        return sum(k.in_graphs for k in self.kernels.values())

    def copied(self, kind: str) -> int:
        """Return the bytes of one kind of copy."""
        return int(sum(b.sum for direction, b in self.copies.items() if direction.kind == kind))

    @property
    def waited_s(self) -> float:
        return sum(b.sum for b in self.waits.values())


class GpuFigures(Record):
    """How one GPU is, as NVML says it."""

    name: str
    utilization: float | None = None
    memory_used: float | None = None
    memory_size: float | None = None
    power: float | None = None
    temperature: float | None = None


class Figures(Record):
    """How everything stands at one time."""

    processes: dict[str, ProcessFigures] = msgspec.field(default_factory=dict)
    """By what tells one program from another."""
    gpus: dict[str, GpuFigures] = msgspec.field(default_factory=dict)
    lost: dict[str, int] = msgspec.field(default_factory=dict)
    """What the agent could not count in full, by its own word."""


def figures(readings: Iterable[Reading]) -> Figures:
    """Add series up."""
    found = Figures()
    for reading in readings:
        if (add := _PROCESS.get(reading.name)) is not None:
            if (process := _process(found, reading.resource)) is not None:
                add(process, reading.attributes, reading.value)
        elif (show := _GPU.get(reading.name)) is not None:
            _gpu(found, reading, show)
        elif reading.name == self_metrics.EVENTS_LOST.name and isinstance(reading.value, int | float):
            event = str(reading.attributes.get("otel_gpu.event", "?"))
            found.lost[event] = found.lost.get(event, 0) + int(reading.value)
    return found


def _process(found: Figures, resource: Resource) -> ProcessFigures | None:
    known = dict(resource.attributes)
    pid = known.get("process.pid")
    key = str(known.get("service.instance.id") or f"{known.get('host.name', '')}/{pid}")
    process = found.processes.get(key)
    if process is None:
        process = found.processes[key] = ProcessFigures(
            int(str(pid)) if str(pid).isdecimal() else None,
            str(known.get("service.name", "?")),
            str(known.get("container.id", "")),
            str(known.get("k8s.pod.name", "")),
        )
    return process


def _kernel(process: ProcessFigures, labels: Labels) -> Kernel:
    name = str(labels.get("cuda.kernel.name") or labels.get(hip.KERNEL_NAME) or "?")
    return process.kernels.setdefault(name, Kernel())


def _launched(process: ProcessFigures, labels: Labels, value: Value) -> None:
    _kernel(process, labels).launches += _whole(value)


def _launched_in_graphs(process: ProcessFigures, labels: Labels, value: Value) -> None:
    _kernel(process, labels).in_graphs += _whole(value)


def _grid(process: ProcessFigures, labels: Labels, value: Value) -> None:
    _kernel(process, labels).grid.add(_spread(value))


def _block(process: ProcessFigures, labels: Labels, value: Value) -> None:
    _kernel(process, labels).block.add(_spread(value))


def _graph(process: ProcessFigures, _labels: Labels, value: Value) -> None:
    process.graph_launches += _whole(value)


def _unexpanded(process: ProcessFigures, _labels: Labels, value: Value) -> None:
    process.unexpanded += _whole(value)


def _copied(in_graph: bool) -> _Add:
    def add(process: ProcessFigures, labels: Labels, value: Value) -> None:
        kind = str(labels.get("cuda.memcpy.kind") or labels.get(hip.COPY_KIND) or "?")
        host = str(labels.get("cuda.memory.host.type") or labels.get(hip.HOST_MEMORY) or "")
        process.copies.setdefault(Direction(kind, host, in_graph), Buckets()).add(_spread(value))

    return add


def _holds(process: ProcessFigures, labels: Labels, value: Value) -> None:
    kind = str(labels.get("cuda.memory.type") or labels.get(hip.MEMORY_TYPE) or "?")
    process.memory[kind] = process.memory.get(kind, 0) + _whole(value)


def _untracked(process: ProcessFigures, _labels: Labels, value: Value) -> None:
    process.untracked = (process.untracked or 0) + _whole(value)


def _waited(process: ProcessFigures, labels: Labels, value: Value) -> None:
    function = str(labels.get("cuda.function") or labels.get(hip.FUNCTION) or "?")
    process.waits.setdefault(function, Buckets()).add(_spread(value))


def _busy(process: ProcessFigures, labels: Labels, value: Value) -> None:
    bound = str(labels.get("otel_gpu.bound", "?"))
    if isinstance(value, int | float):
        process.busy[bound] = process.busy.get(bound, 0.0) + value


def _failed(process: ProcessFigures, labels: Labels, value: Value) -> None:
    function = str(labels.get("cuda.function") or labels.get(hip.FUNCTION) or "?")
    error = function, str(labels.get("error.type", "?"))
    process.errors[error] = process.errors.get(error, 0) + _whole(value)


def _requested(process: ProcessFigures, _labels: Labels, value: Value) -> None:
    process.requests.add(_spread(value))


def _launched_for_requests(process: ProcessFigures, _labels: Labels, value: Value) -> None:
    process.request_launches.add(_spread(value))


def _lost(process: ProcessFigures, labels: Labels, value: Value) -> None:
    event = str(labels.get("otel_gpu.event", "?"))
    process.lost[event] = process.lost.get(event, 0) + _whole(value)


def _overflowed(process: ProcessFigures, _labels: Labels, value: Value) -> None:
    process.lost["series_overflow"] = process.lost.get("series_overflow", 0) + _whole(value)


def _gpu(found: Figures, reading: Reading, show: str) -> None:
    known = {**dict(reading.resource.attributes), **reading.attributes}
    ident = known.get("hw.id")
    if ident is None or not isinstance(reading.value, int | float) or known.get("hw.gpu.task", "general") != "general":
        return
    gpu = found.gpus.setdefault(str(ident), GpuFigures(str(known.get("hw.model") or known.get("hw.name") or ident)))
    setattr(gpu, show, float(reading.value))


def _whole(value: Value) -> int:
    return int(value.sum if isinstance(value, Buckets) else value)


def _spread(value: Value) -> Buckets:
    return value if isinstance(value, Buckets) else Buckets()


_Add = Callable[[ProcessFigures, Labels, Value], None]
_PROCESS: dict[str, _Add] = {
    **{m.KERNEL_LAUNCH_CALLS.name: _launched for m in (cuda, hip)},
    **{m.GRAPH_KERNEL_CALLS.name: _launched_in_graphs for m in (cuda, hip)},
    **{m.KERNEL_GRID_SIZE.name: _grid for m in (cuda, hip)},
    **{m.KERNEL_BLOCK_SIZE.name: _block for m in (cuda, hip)},
    **{m.GRAPH_LAUNCH_CALLS.name: _graph for m in (cuda, hip)},
    **{m.MEMORY_COPIES.name: _copied(False) for m in (cuda, hip)},
    **{m.GRAPH_MEMORY_COPIES.name: _copied(True) for m in (cuda, hip)},
    **{m.MEMORY_USAGE.name: _holds for m in (cuda, hip)},
    cuda.MEMORY_UNTRACKED.name: _untracked,
    **{m.SYNCHRONIZE_DURATION.name: _waited for m in (cuda, hip)},
    cuda.BUSY_TIME.name: _busy,
    **{m.ERRORS.name: _failed for m in (cuda, hip)},
    requests.HTTP_DURATION.name: _requested,
    requests.RPC_DURATION.name: _requested,
    requests.LAUNCHES.name: _launched_for_requests,
    self_metrics.PROCESS_EVENTS_LOST.name: _lost,
    self_metrics.GRAPH_UNEXPANDED_LAUNCHES.name: _unexpanded,
    self_metrics.SERIES_OVERFLOW.name: _overflowed,
}
_GPU = {
    hardware.UTILIZATION.name: "utilization",
    hardware.MEMORY_USAGE.name: "memory_used",
    hardware.MEMORY_LIMIT.name: "memory_size",
    hardware.POWER.name: "power",
    hardware.TEMPERATURE.name: "temperature",
}
