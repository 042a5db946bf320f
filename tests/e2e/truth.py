"""What happened, as the mock driver counted it? Its truth files, in the names under which the agent exports."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

_COPY_KINDS = {
    "HtoD": "MemcpyHostToDevice",
    "DtoH": "MemcpyDeviceToHost",
    "DtoD": "MemcpyDeviceToDevice",
    "HtoH": "MemcpyHostToHost",
    "peer": "MemcpyPeer",
}
_MEMORY_TYPES = {
    "device": "device",
    "pinned_host": "host",
    "managed": "managed",
    "registered": "registered",
    "async_pool": "async",
    "vmm": "virtual",
}


@dataclass(frozen=True, slots=True)
class Histogram:
    """Values counted and added up, and counted by OTLP bucket at scale 0."""

    count: int = 0
    sum: float = 0
    buckets: Counter[int] = field(default_factory=Counter)

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(self.count + other.count, self.sum + other.sum, self.buckets + other.buckets)

    def __sub__(self, other: Histogram) -> Histogram:
        return Histogram(self.count - other.count, self.sum - other.sum, self.buckets - other.buckets)


@dataclass(frozen=True, slots=True)
class Truth:
    """One process's calls, since it started or between two snapshots."""

    pid: int
    calls: Counter[str]
    """Successful calls by exported name."""
    errors: Counter[tuple[str, int]]
    launches: Counter[str]
    """Direct launches by kernel name."""
    grids: dict[str, Histogram]
    blocks: dict[str, Histogram]
    graph_launches: int
    graph_kernels: int
    graphed: Counter[str]
    """Kernels that graph launches executed, by name."""
    graph_copies: Histogram
    """Copies that graph launches executed; without buckets."""
    graph_memset_bytes: int
    copies: dict[str, Histogram]
    """By the kind that follows from the pointers; without buckets."""
    memset_bytes: int
    allocated: Counter[str]
    """Bytes by cuda.memory.type."""
    freed: Counter[str]
    """By the program; what went with its context is only no longer live."""
    live: Counter[str]

    @classmethod
    def read(cls, path: Path) -> Truth:
        """Read a truth file."""
        raw = json.loads(path.read_text())
        kernels = {name: k for name, k in raw["kernels"].items() if k["launches"]}
        return cls(
            pid=raw["pid"],
            calls=Counter({name: n["0"] for name, n in raw["calls"].items() if "0" in n}),
            errors=Counter({(f, int(c)): n for f, codes in raw["calls"].items() for c, n in codes.items() if c != "0"}),
            launches=Counter({name: k["launches"] for name, k in kernels.items()}),
            grids={name: _shape(k, "grid_blocks_sum", "grid_buckets") for name, k in kernels.items()},
            blocks={name: _shape(k, "block_threads_sum", "block_buckets") for name, k in kernels.items()},
            graph_launches=raw["graphs"]["launches"],
            graph_kernels=raw["launches"]["in_graphs"],
            graphed=Counter({name: k["graph_executed"] for name, k in raw["kernels"].items() if k["graph_executed"]}),
            copies={
                _COPY_KINDS[kind]: Histogram(sum(s["count"] for s in by.values()), sum(s["bytes"] for s in by.values()))
                for kind, by in raw["copies"].items()
            },
            graph_copies=Histogram(
                sum(s["count"] for by in raw["copies_in_graphs"].values() for s in by.values()),
                sum(s["bytes"] for by in raw["copies_in_graphs"].values() for s in by.values()),
            ),
            graph_memset_bytes=raw["memset_in_graphs"]["bytes"],
            memset_bytes=raw["memset"]["bytes"],
            allocated=Counter({name: raw["allocations"][key]["bytes"] for key, name in _MEMORY_TYPES.items()}),
            freed=Counter({name: raw["allocations"][key]["freed_bytes"] for key, name in _MEMORY_TYPES.items()}),
            live=Counter({name: raw["allocations"][key]["live_bytes"] for key, name in _MEMORY_TYPES.items()}),
        )

    def __sub__(self, earlier: Truth) -> Truth:
        """What happened since an earlier snapshot of the same process."""
        nothing = Histogram()
        return Truth(
            pid=self.pid,
            calls=self.calls - earlier.calls,
            errors=self.errors - earlier.errors,
            launches=self.launches - earlier.launches,
            grids={name: g - earlier.grids.get(name, nothing) for name, g in self.grids.items()},
            blocks={name: b - earlier.blocks.get(name, nothing) for name, b in self.blocks.items()},
            graph_launches=self.graph_launches - earlier.graph_launches,
            graph_kernels=self.graph_kernels - earlier.graph_kernels,
            graphed=self.graphed - earlier.graphed,
            copies={kind: c - earlier.copies[kind] for kind, c in self.copies.items()},
            graph_copies=self.graph_copies - earlier.graph_copies,
            graph_memset_bytes=self.graph_memset_bytes - earlier.graph_memset_bytes,
            memset_bytes=self.memset_bytes - earlier.memset_bytes,
            allocated=self.allocated - earlier.allocated,
            freed=self.freed - earlier.freed,
            live=self.live,
        )

    @property
    def copied(self) -> Histogram:
        """Copies of every kind together."""
        return sum(self.copies.values(), Histogram())


def _shape(kernel: dict[str, object], total: str, buckets: str) -> Histogram:
    counts = Counter({int(i): n for i, n in kernel[buckets].items()})
    return Histogram(kernel["launches"], kernel[total], counts)
