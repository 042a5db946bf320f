"""Unmodified programs on NVIDIA's real runtimes, and Python on top of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e import comparison, ground
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program
from tests.e2e.truth import Truth

VARIANTS = ("13_shared", "13_static", "13_stripped", "13_perthread", "12_shared", "12_static")


def _observe(command: list[str | Path], directory: Path, **environment: str) -> tuple[Metrics, Truth]:
    """Attach at the program's `ready`, let it do its work, and return what was exported and what happened since."""
    with Program(command, directory, environment) as program:
        program.ready(timeout=180)
        before = program.truth_now()
        with Agent(["--pid", str(program.pid), "--output", f"file:{directory / 'out'}"], directory) as agent:
            agent.wait_attached()
            program.run_phase(timeout=240)
            after = program.finish()
            agent.stop()
    everything = read_metrics(directory / "out")
    comparison.assert_nothing_lost(everything)
    return everything.of(after.pid), after - before


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_program_built_by_nvcc_is_counted_exactly(variant: str, tmp_path: Path) -> None:
    program = ground.part("cuprograms") / f"runtime_calls_{variant}"
    if not program.exists():
        pytest.skip(f"{program.name} was not built: the part cuda12 is missing")

    exported, truth = _observe([program, "1", "3000"], tmp_path)

    assert truth.launches["_ZN4shop4axpyEifPKfPf"] == 3001
    assert truth.launches["_Z9cooperatePi"] == 1
    comparison.assert_totals(exported, truth)
    comparison.assert_launches(exported, truth)
    assert +exported.by(comparison.ALLOCATED, "cuda.memory.type") == +truth.allocated


def test_python_through_ctypes_is_counted_exactly(tmp_path: Path) -> None:
    command = [sys.executable, ground.PROGRAMS / "ctypes_calls.py", "--launches", "2000"]

    exported, truth = _observe(command, tmp_path)

    assert truth.launches == {"embed_tokens": 2000, "attend": 500}
    comparison.assert_all(exported, truth)
    assert {s.resource["service.name"] for s in exported.samples} == {"ctypes_calls"}


def test_cupy_is_counted_exactly(tmp_path: Path) -> None:
    command = [ground.part("cupy"), ground.PROGRAMS / "cupy_calls.py", "--launches", "500"]

    exported, truth = _observe(command, tmp_path, CUPY_CACHE_DIR=str(tmp_path / "cupy"))

    assert truth.launches["own_kernel"] == 500
    comparison.assert_totals(exported, truth)
    assert exported.total(comparison.LAUNCHES) > 500


@pytest.mark.torch
def test_a_pytorch_training_step_is_counted_exactly(tmp_path: Path) -> None:
    command = [ground.torch_python(), ground.PROGRAMS / "torch_train.py", "--steps", "5"]

    # PyTorch brings its own runtime, which the test's library path must not replace.
    exported, truth = _observe(command, tmp_path, LD_LIBRARY_PATH=str(ground.part("mock")))

    assert truth.launches.total() > 500
    comparison.assert_totals(exported, truth)
    assert exported.histogram(comparison.GRIDS).sum == sum(g.sum for g in truth.grids.values())
