"""What do CUDA graphs execute? Captured, built, cloned, updated and launched many times: all of it, by name."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e import comparison, ground, naming
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program
from tests.e2e.test_ledger import observer
from tests.e2e.truth import Truth

LAUNCHES = 10_000
KERNELS = "gpu.cuda.graph.kernel.calls"
COPIES = "gpu.cuda.graph.memory.copies"
MEMSETS = "gpu.cuda.graph.memset.bytes"


@pytest.fixture(scope="module")
def mix(tmp_path_factory: pytest.TempPathFactory) -> tuple[Metrics, Truth]:
    directory: Path = tmp_path_factory.mktemp("graphs")
    mock = {"LD_LIBRARY_PATH": str(ground.part("mock"))}
    with Agent(naming.arguments(directory), directory, mock) as agent:
        agent.wait_attached()
        with Program([ground.part("programs") / "graph_mix", str(LAUNCHES)], directory) as program:
            program.ready()
            program.run_phase()
            truth = program.finish()
        agent.stop()
    everything = read_metrics(directory / "out")
    comparison.assert_nothing_lost(everything, truth.pid)
    return everything.of(truth.pid), truth


def test_what_several_threads_use_first_at_once_is_lost_by_none(tmp_path: Path) -> None:
    with Program([ground.part("programs") / "first_uses"], tmp_path) as program:
        program.ready()
        with Agent(["--pid", str(program.pid), *naming.arguments(tmp_path)], tmp_path) as agent:
            agent.wait_attached()
            program.run_phase()
            truth = program.finish()
            agent.stop()
    everything = read_metrics(tmp_path / "out")

    assert len(truth.launches) == 200
    comparison.assert_nothing_lost(everything)
    comparison.assert_launches(everything.of(truth.pid), truth)


def test_every_graph_launch_is_counted(mix: tuple[Metrics, Truth]) -> None:
    exported, truth = mix

    assert truth.graph_launches > LAUNCHES
    assert exported.total(comparison.GRAPHS) == truth.graph_launches
    assert exported.total(comparison.LAUNCHES) == 0


def test_every_kernel_of_every_graph_is_counted_by_name(mix: tuple[Metrics, Truth]) -> None:
    exported, truth = mix

    assert truth.graphed["graphed_0"] == 2 * LAUNCHES
    assert truth.graphed["graphed_11"] == 47
    assert truth.graphed["graphed_12"] == 2 * (53 + 59)
    assert truth.graphed["graphed_13"] == 53 + 2 * 59
    assert exported.by(KERNELS, "cuda.kernel.name") == truth.graphed


def test_every_copy_and_memset_of_graphs_is_counted(mix: tuple[Metrics, Truth]) -> None:
    exported, truth = mix

    copied = exported.histogram(COPIES)
    assert (copied.count, copied.sum) == (truth.graph_copies.count, truth.graph_copies.sum)
    assert exported.total(MEMSETS) == truth.graph_memset_bytes
    kinds = {kind: h.count for kind, h in exported.histograms_by(COPIES, "cuda.memcpy.kind").items()}
    assert kinds["MemcpyHostToDevice"] == LAUNCHES
    assert exported.total(comparison.MEMSETS) == exported.histogram(comparison.COPIES).count == 0


@pytest.mark.parametrize(
    ("what", "executed", "reason"),
    [
        ("if", {"outside": 3, "otherwise": 3}, "conditional"),
        ("while", {"outside": 3, "inside": 15}, "conditional"),
        ("switch", {"outside": 3, "otherwise": 3, "inside": 6}, "conditional"),
        ("flags", {"outside": 3}, "device_launch"),
        ("params", {"outside": 3}, "device_launch"),
        ("plain", {"outside": 3}, None),
        ("reused", {"outside": 3}, None),
    ],
)
def test_what_the_device_decides_is_not_counted_and_said(
    tmp_path: Path, what: str, executed: dict[str, int], reason: str | None
) -> None:
    with Program([sys.executable, "-S", ground.PROGRAMS / "new_graphs.py", what], tmp_path) as program:
        program.ready()
        with observer(program.pid) as agent:
            program.run_phase()
            assert program.truth_now().graphed == executed

            counted: Counter[tuple[str, object]] = Counter()
            for point in agent.snapshot():
                if dict(point.resource.attributes).get("process.pid") == program.pid:
                    known = dict(point.attributes)
                    which = known.get("cuda.kernel.name") or known.get("otel_gpu.reason")
                    counted[point.name, which] += point.value if isinstance(point.value, int) else 0
            assert counted[comparison.GRAPHS, None] == 3
            assert {k: n for (name, k), n in counted.items() if name == KERNELS} == {"outside": 3}
            unexpanded = {k: n for (name, k), n in counted.items() if name == comparison.UNEXPANDED}
            assert unexpanded == ({reason: 3} if reason else {})
