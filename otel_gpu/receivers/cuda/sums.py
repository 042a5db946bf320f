"""What do the kernel's rows add up to? Series of measurements, by process and attributes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from ...bpf.abi.events import NodeType
from ...bpf.abi.rows import (
    BUCKET_NONE,
    BUCKET_ZERO,
    DEVICE_UNKNOWN,
    Allocation,
    CopyKind,
    Family,
    FreeCause,
    HostMemory,
    MemoryType,
)
from ...components.counting.buckets import BUCKET_SHIFT, DURATION_SHIFT
from ...discovery.processes import Process
from ...probes.table import FUNCTIONS
from ...signals import cuda, self_metrics
from ...signals.metrics import (
    Attributes,
    AttributeValue,
    Buckets,
    Measurement,
    MetricSpec,
    Resource,
    Value,
    attributes,
    bucket_index,
)
from .busy import BusyDelta
from .graphs import Contents, copies
from .rows import RowDelta

COPY_KINDS = {
    CopyKind.HOST_TO_HOST: "MemcpyHostToHost",
    CopyKind.HOST_TO_DEVICE: "MemcpyHostToDevice",
    CopyKind.DEVICE_TO_HOST: "MemcpyDeviceToHost",
    CopyKind.DEVICE_TO_DEVICE: "MemcpyDeviceToDevice",
    CopyKind.DEFAULT: "MemcpyDefault",
    CopyKind.PEER: "MemcpyPeer",
}
_HOST_MEMORY = {HostMemory.PAGEABLE: "pageable", HostMemory.PINNED: "pinned"}
MEMORY_TYPES: dict[MemoryType, str] = {t: t.name.lower() for t in MemoryType if t != MemoryType.UNKNOWN}

KernelName = Callable[[Process, int], str]
KernelKey = Callable[[Process, int, int], int]
"""Which kernel a process's handle was at a generation, by the key under which it has its name."""
GraphContents = Callable[[Process, int], Contents | None]
MayLaunchOnDevice = Callable[[Process], bool]
ErrorName = Callable[[Process, int], str]
_Key = tuple[Resource, MetricSpec, Attributes]


class CudaSums:
    """Adds rows up into series."""

    def __init__(
        self,
        kernel_name: KernelName,
        kernel_key: KernelKey,
        graph_contents: GraphContents,
        may_launch_on_device: MayLaunchOnDevice,
        error_name: ErrorName,
    ) -> None:
        self._kernel_name = kernel_name
        self._kernel_key = kernel_key
        self._graph_contents = graph_contents
        self._may_launch_on_device = may_launch_on_device
        self._error_name = error_name
        self._numbers: dict[_Key, int] = defaultdict(int)
        self._seconds: dict[_Key, float] = defaultdict(float)
        self._histograms: dict[_Key, Buckets] = defaultdict(Buckets)
        self._unexpanded: dict[tuple[Resource, str], int] = defaultdict(int)

    def add(self, process: Process, row: RowDelta) -> None:
        """Add one row to the series it counts in."""
        match Family(row.family):
            case Family.LAUNCH:
                self._launch(process, row)
            case Family.GRAPH_LAUNCH:
                self._graph_launch(process, row)
            case Family.COPY:
                self._copy(process, row)
            case Family.MEMSET:
                self._memset(process, row)
            case Family.ALLOC:
                self._allocation(process, row)
            case Family.FREE:
                self._free(process, row)
            case Family.WAIT:
                self._wait(process, row)
            case Family.ERROR:
                self._error(process, row)
            case Family.IDLE:
                self._duration(process, row, cuda.IDLE_DURATION)
            case Family.ELAPSED:
                self._duration(process, row, cuda.EVENT_ELAPSED_TIME)

    def measurements(self) -> Iterator[Measurement]:
        """Yield what was added up."""
        tables: tuple[dict[_Key, Value], ...] = (self._numbers, self._seconds, self._histograms)  # type: ignore[assignment]
        for table in tables:
            for (resource, metric, attrs), value in table.items():
                yield Measurement(resource, metric, attrs, value)

    def unexpanded(self) -> Iterator[Measurement]:
        """Yield how many graph launches execute more than is counted, and why."""
        for (resource, reason), count in self._unexpanded.items():
            attrs = attributes({"otel_gpu.reason": reason})
            yield Measurement(resource, self_metrics.GRAPH_UNEXPANDED_LAUNCHES, attrs, count)

    def ended(self, process: Process, device: int, kind: MemoryType, size: int) -> None:
        """Count memory that went with its context: no longer in use, without having been freed."""
        attrs = _attributes(device, {"cuda.memory.type": MEMORY_TYPES[kind]})
        self._numbers[process.resource, cuda.MEMORY_USAGE, attrs] -= size

    def busy(self, process: Process, grown: BusyDelta) -> None:
        """Add what the bounds of a device's busy time grew by."""
        for bound, ns in (("lower", grown.lower_ns), ("upper", grown.upper_ns)):
            attrs = _attributes(grown.device, {"otel_gpu.bound": bound})
            self._seconds[process.resource, cuda.BUSY_TIME, attrs] += ns / 1e9

    def _bucket(self, key: _Key, bucket: int, count: int, total: float, shift: int = BUCKET_SHIFT) -> None:
        if bucket == BUCKET_NONE:
            return
        histogram = self._histograms[key]
        histogram.sum += total
        histogram.count += count
        if bucket == BUCKET_ZERO:
            histogram.zero_count += count
        else:
            histogram.counts[bucket - shift] = histogram.counts.get(bucket - shift, 0) + count

    def _launch(self, process: Process, row: RowDelta) -> None:
        key = self._kernel_key(process, row.subject, row.function)
        attrs = _attributes(row.device, {"cuda.kernel.name": self._kernel_name(process, key)})
        resource = process.resource
        self._numbers[resource, cuda.KERNEL_LAUNCH_CALLS, attrs] += row.count
        self._bucket((resource, cuda.KERNEL_GRID_SIZE, attrs), row.bucket_a, row.count, row.sum_a)
        self._bucket((resource, cuda.KERNEL_BLOCK_SIZE, attrs), row.bucket_b, row.count, row.sum_b)

    def _graph_launch(self, process: Process, row: RowDelta) -> None:
        resource = process.resource
        self._numbers[resource, cuda.GRAPH_LAUNCH_CALLS, _attributes(row.device)] += row.count
        contents = self._graph_contents(process, row.subject)
        if contents is None:
            self._unexpanded[resource, "older"] += row.count
            return
        if reason := self._more_than(contents, process):
            self._unexpanded[resource, reason] += row.count
        for node, count in contents.items():
            if node.type is NodeType.KERNEL:
                attrs = _attributes(row.device, {"cuda.kernel.name": self._kernel_name(process, node.value)})
                self._numbers[resource, cuda.GRAPH_KERNEL_CALLS, attrs] += count * row.count
            elif node.type is NodeType.GRAPH:
                self._unexpanded[resource, "older"] += count * row.count
            elif node.type is NodeType.MEMSET:
                attrs = _attributes(row.device)
                self._numbers[resource, cuda.GRAPH_MEMSET_BYTES, attrs] += node.value * count * row.count
        for kind, host, size, count in copies(contents):
            key = (resource, cuda.GRAPH_MEMORY_COPIES, _copy_attributes(row.device, kind, host, process))
            times = count * row.count
            histogram = self._histograms[key]
            histogram.add(Buckets({bucket_index(size): times}, size * times) if size else Buckets(zero_count=times))

    def _more_than(self, contents: Contents, process: Process) -> str | None:
        """Return why a launch may execute more than a graph's contents; the first of several reasons."""
        types = {node.type for node in contents}
        if NodeType.CONDITIONAL in types:
            return "conditional"
        if NodeType.UNKNOWN in types:
            return "unknown_node"
        return "device_launch" if self._may_launch_on_device(process) else None

    def _copy(self, process: Process, row: RowDelta) -> None:
        attrs = _copy_attributes(row.device, CopyKind(row.what), HostMemory(row.detail), process)
        self._bucket((process.resource, cuda.MEMORY_COPIES, attrs), row.bucket_a, row.count, row.sum_a)

    def _memset(self, process: Process, row: RowDelta) -> None:
        self._numbers[process.resource, cuda.MEMSET_BYTES, _attributes(row.device)] += row.sum_a

    def _free(self, process: Process, row: RowDelta) -> None:
        kind = MemoryType(row.what)
        if kind is MemoryType.UNKNOWN:
            attrs = attributes(
                {"otel_gpu.reason": "untracked" if row.detail == FreeCause.UNTRACKED else "allocated_before"}
            )
            self._numbers[process.resource, cuda.MEMORY_UNKNOWN_FREES, attrs] += row.count
            return
        if row.detail == FreeCause.IMPLICIT:
            attrs = attributes({"otel_gpu.reason": "implicit"})
            self._numbers[process.resource, cuda.MEMORY_UNKNOWN_FREES, attrs] += row.count
        self._memory(process, row.device, kind, -row.sum_a)

    def _allocation(self, process: Process, row: RowDelta) -> None:
        kind = MemoryType(row.what)
        if row.detail == Allocation.UNTRACKED:
            attrs = _attributes(row.device, {"cuda.memory.type": MEMORY_TYPES[kind]})
            self._numbers[process.resource, cuda.MEMORY_ALLOCATIONS, attrs] += row.sum_a
        else:
            self._memory(process, row.device, kind, row.sum_a)

    def _memory(self, process: Process, device: int, kind: MemoryType, change: int) -> None:
        attrs = _attributes(device, {"cuda.memory.type": MEMORY_TYPES[kind]})
        metric = cuda.MEMORY_ALLOCATIONS if change > 0 else cuda.MEMORY_FREE_BYTES
        self._numbers[process.resource, metric, attrs] += abs(change)
        self._numbers[process.resource, cuda.MEMORY_USAGE, attrs] += change

    def _duration(self, process: Process, row: RowDelta, metric: MetricSpec) -> None:
        key = (process.resource, metric, _attributes(row.device))
        self._bucket(key, row.bucket_a, row.count, row.sum_a / 1e9, DURATION_SHIFT)

    def _wait(self, process: Process, row: RowDelta) -> None:
        attrs = _attributes(row.device, {"cuda.function": FUNCTIONS[row.function]})
        key = (process.resource, cuda.SYNCHRONIZE_DURATION, attrs)
        self._bucket(key, row.bucket_a, row.count, row.sum_a / 1e9, DURATION_SHIFT)

    def _error(self, process: Process, row: RowDelta) -> None:
        attrs = attributes(
            {"cuda.function": FUNCTIONS[row.function], "error.type": self._error_name(process, row.subject)}
        )
        self._numbers[process.resource, cuda.ERRORS, attrs] += row.count


def _attributes(device: int, more: Mapping[str, AttributeValue | None] = MappingProxyType({})) -> Attributes:
    if device == DEVICE_UNKNOWN:
        return attributes(more)
    return attributes(more, **{"cuda.device.index": device})


def _copy_attributes(device: int, kind: CopyKind, host: HostMemory, process: Process) -> Attributes:
    if host is HostMemory.PAGEABLE and process.late:
        # It may have been page-locked before the probes were there.
        host = HostMemory.NONE
    return _attributes(device, {"cuda.memcpy.kind": COPY_KINDS[kind], "cuda.memory.host.type": _HOST_MEMORY.get(host)})
