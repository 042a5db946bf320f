"""Are calls followed that few programs make: edits of graphs, captures that end badly, shared virtual memory, failures?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e import comparison, ground, naming
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program
from tests.e2e.truth import Truth

SLICE = 2 << 20


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], Truth, Metrics, Metrics]:
    directory: Path = tmp_path_factory.mktemp("rare")
    with Program([sys.executable, "-S", ground.PROGRAMS / "rare_calls.py"], directory) as program:
        program.ready()
        with Agent(["--pid", str(program.pid), *naming.arguments(directory)], directory) as agent:
            agent.wait_attached()
            said = program.run_phase()
            truth = program.finish()
            agent.stop()
    everything = read_metrics(directory / "out")
    return said, truth, everything, everything.of(truth.pid)


def test_graphs_execute_what_they_were_edited_to(run: tuple[dict[str, object], Truth, Metrics, Metrics]) -> None:
    _, truth, _, exported = run
    assert exported.by(comparison.GRAPH_KERNELS, "cuda.kernel.name") == truth.graphed


def test_a_capture_goes_on_after_a_wrong_end(run: tuple[dict[str, object], Truth, Metrics, Metrics]) -> None:
    _, truth, _, exported = run
    assert exported.by(comparison.LAUNCHES, "cuda.kernel.name") == truth.launches


def test_kernels_that_were_listed_have_the_names_that_were_asked_for(
    run: tuple[dict[str, object], Truth, Metrics, Metrics],
) -> None:
    launches = run[3].by(comparison.LAUNCHES, "cuda.kernel.name")
    assert {launches[f"listed{n}"] for n in range(8)} == set(range(1, 9))


def test_virtual_memory_is_held_by_its_maker(run: tuple[dict[str, object], Truth, Metrics, Metrics]) -> None:
    said, _, _, exported = run
    held = exported.total(comparison.ALLOCATED) - exported.total(comparison.FREED)
    assert held == said["slices"] * SLICE
    assert exported.total("gpu.cuda.memory.unmatched.frees") == 0


def test_rare_calls_that_fail_are_counted_too(run: tuple[dict[str, object], Truth, Metrics, Metrics]) -> None:
    _, truth, _, exported = run
    errors = exported.by(comparison.ERRORS, "cuda.function")
    assert errors == {
        "cuModuleGetFunction": 1,
        "cuGraphDestroy": 1,
        "cuCtxCreate": 1,
        "cuEventElapsedTime": 1,
        "cuStreamEndCapture": 1,
    }
    assert errors.total() == truth.errors.total()


def test_nothing_is_lost(run: tuple[dict[str, object], Truth, Metrics, Metrics]) -> None:
    comparison.assert_nothing_lost(run[2])
