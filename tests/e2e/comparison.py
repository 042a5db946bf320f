"""Is what was exported what happened? Compared to the last call and byte, for one process."""

from __future__ import annotations

from tests.e2e.exported import Metrics
from tests.e2e.truth import Truth

LAUNCHES = "gpu.cuda.kernel.launch.calls"
GRIDS = "gpu.cuda.kernel.grid.size"
BLOCKS = "gpu.cuda.kernel.block.size"
GRAPHS = "gpu.cuda.graph.launch.calls"
GRAPH_KERNELS = "gpu.cuda.graph.kernel.calls"
COPIES = "gpu.cuda.memory.copies"
MEMSETS = "gpu.cuda.memset.bytes"
ALLOCATED = "gpu.cuda.memory.allocations"
FREED = "gpu.cuda.memory.free.bytes"
USAGE = "gpu.cuda.memory.usage"
WAITS = "gpu.cuda.synchronize.duration"
ERRORS = "gpu.cuda.errors"
LOST = "otel_gpu.events.lost"
UNEXPANDED = "otel_gpu.graph.unexpanded.launches"
LOST_OF_PROCESS = "otel_gpu.process.events.lost"


def assert_launches(exported: Metrics, truth: Truth) -> None:
    """Every launch, in the right kernel's series, with the right dimensions."""
    assert exported.total(LAUNCHES) == truth.launches.total()
    # By count, not by name: a kernel may be shown by its handle, and no two kernels of a test are as frequent.
    by_kernel = exported.by(LAUNCHES, "cuda.kernel.name")
    assert sorted(by_kernel.values()) == sorted(truth.launches.values())
    for metric, shapes in ((GRIDS, truth.grids), (BLOCKS, truth.blocks)):
        histograms = exported.histograms_by(metric, "cuda.kernel.name").values()
        assert sorted(histograms, key=lambda h: h.count) == sorted(shapes.values(), key=lambda h: h.count)


def assert_totals(exported: Metrics, truth: Truth) -> None:
    """Every call and byte, whatever series it is in."""
    assert exported.restarted() == []
    assert exported.total(LAUNCHES) == truth.launches.total()
    assert exported.total(GRAPHS) == truth.graph_launches
    copied = exported.histogram(COPIES)
    assert (copied.count, copied.sum) == (truth.copied.count, truth.copied.sum)
    assert exported.total(MEMSETS) == truth.memset_bytes
    assert exported.total(ALLOCATED) == truth.allocated.total()


def assert_memory(exported: Metrics, truth: Truth) -> None:
    """Every byte allocated and freed, by type."""
    assert +exported.by(ALLOCATED, "cuda.memory.type") == +truth.allocated
    assert +exported.by(FREED, "cuda.memory.type") == +truth.freed


def assert_all(exported: Metrics, truth: Truth) -> None:
    """All of it, for a process that was observed from its first call."""
    assert_totals(exported, truth)
    assert_launches(exported, truth)
    assert_memory(exported, truth)


def assert_nothing_lost(everything: Metrics, *pids: int) -> None:
    """The agent says that it lost nothing; of these processes, where it had others of the host to look at as well."""
    for pid in pids:
        assert +everything.of(pid).by(LOST_OF_PROCESS, "otel_gpu.event") == {}
        assert everything.of(pid).total(UNEXPANDED) == 0
    observed = {s.resource["process.pid"] for s in everything.samples if s.name.startswith("gpu.cuda.")}
    if not pids or observed <= set(pids):
        assert +everything.by(LOST, "otel_gpu.event") == {}
