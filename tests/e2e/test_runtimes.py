"""An unmodified PyTorch program, on the runtime that it brings; programs on runtimes alone are in `test_names`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import comparison, ground
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program
from tests.e2e.truth import Truth


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


@pytest.mark.torch
def test_a_pytorch_training_step_is_counted_exactly(tmp_path: Path) -> None:
    command = [ground.torch_python(), ground.PROGRAMS / "torch_train.py", "--steps", "5"]

    # PyTorch brings its own runtime, which the test's library path must not replace.
    exported, truth = _observe(command, tmp_path, LD_LIBRARY_PATH=str(ground.part("mock")))

    assert truth.launches.total() > 500
    comparison.assert_totals(exported, truth)
    assert exported.histogram(comparison.GRIDS).sum == sum(g.sum for g in truth.grids.values())
