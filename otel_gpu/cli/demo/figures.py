"""What do an agent's series add up to? The figures that the demo shows, from `Agent.snapshot()`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...signals.metrics import Buckets, Point
from ...signals.structs import Record


class Sum(Record):
    """How often, and how much in all."""

    count: int = 0
    total: float = 0

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def add(self, buckets: Buckets) -> None:
        self.count += buckets.count
        self.total += buckets.sum


class Kernel(Record):
    """How one kernel was launched."""

    launches: int = 0
    in_graphs: int = 0
    grid: Sum = msgspec.field(default_factory=Sum)
    block: Sum = msgspec.field(default_factory=Sum)


class Figures(Record):
    """Everything since the agent started."""

    device: str = ""
    kernels: dict[str, Kernel] = msgspec.field(default_factory=dict)
    graph_launches: int = 0
    copies: dict[tuple[str, str], Sum] = msgspec.field(default_factory=dict)
    """By kind and by what the host's side is."""
    allocated: int = 0
    memory: dict[str, int] = msgspec.field(default_factory=dict)
    waits: dict[str, Sum] = msgspec.field(default_factory=dict)
    errors: dict[tuple[str, str], int] = msgspec.field(default_factory=dict)
    lost: int = 0
    """What the agent could not count in full, by its own word."""

    @property
    def launches(self) -> int:
        return sum(k.launches for k in self.kernels.values())

    @property
    def kernels_in_graphs(self) -> int:
        return sum(k.in_graphs for k in self.kernels.values())

    def copied(self, kind: str, host: str | None = None) -> int:
        """Return the bytes of one kind, of all host memory or of one type."""
        return int(sum(s.total for (k, h), s in self.copies.items() if k == kind and host in (None, h)))

    def totals(self) -> dict[str, int]:
        """Return what the observed program counts too, by the words that it uses."""
        return {
            "launches": self.launches,
            "graph launches": self.graph_launches,
            "kernels in graphs": self.kernels_in_graphs,
            "bytes to the GPU": self.copied("MemcpyHostToDevice"),
            "bytes from the GPU": self.copied("MemcpyDeviceToHost"),
            "bytes allocated": self.allocated,
            "errors": sum(self.errors.values()),
        }


def figures(points: Iterable[Point]) -> Figures:
    """Add up the series of every process and device."""
    sums = Figures()
    for point in points:
        _add(sums, point, {key: str(value) for key, value in point.attributes})
    return sums


def _add(sums: Figures, point: Point, attributes: dict[str, str]) -> None:
    value = point.value
    sums.device = attributes.get("cuda.device.model", sums.device)
    kernel = attributes.get("cuda.kernel.name", "")
    if isinstance(value, Buckets):
        match point.name:
            case "gpu.cuda.kernel.grid.size":
                sums.kernels.setdefault(kernel, Kernel()).grid.add(value)
            case "gpu.cuda.kernel.block.size":
                sums.kernels.setdefault(kernel, Kernel()).block.add(value)
            case "gpu.cuda.memory.copies":
                key = attributes["cuda.memcpy.kind"], attributes.get("cuda.memory.host.type", "")
                sums.copies.setdefault(key, Sum()).add(value)
            case "gpu.cuda.synchronize.duration":
                sums.waits.setdefault(attributes["cuda.function"], Sum()).add(value)
        return
    number = int(value)
    match point.name:
        case "gpu.cuda.kernel.launch.calls":
            sums.kernels.setdefault(kernel, Kernel()).launches += number
        case "gpu.cuda.graph.kernel.calls":
            sums.kernels.setdefault(kernel, Kernel()).in_graphs += number
        case "gpu.cuda.graph.launch.calls":
            sums.graph_launches += number
        case "gpu.cuda.memory.allocations":
            sums.allocated += number
        case "gpu.cuda.memory.usage":
            kind = attributes["cuda.memory.type"]
            sums.memory[kind] = sums.memory.get(kind, 0) + number
        case "gpu.cuda.errors":
            error = attributes["cuda.function"], attributes["error.type"]
            sums.errors[error] = sums.errors.get(error, 0) + number
        case "otel_gpu.events.lost":
            sums.lost += number
