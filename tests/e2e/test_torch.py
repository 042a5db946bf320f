"""PyTorch trains, replays CUDA graphs and compiles: every launch has its name, from the start and from the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import comparison, ground, naming
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program
from tests.e2e.truth import Truth

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]
FIRST, LATE = 0.99, 0.99
"""Shares of the launches that must have their names."""
REPLAYS = 25
STARTS_S, SETTLES_S = 300, 300
"""PyTorch is gigabytes of files, read for the first time by the program and by the agent."""


def _command(*options: str) -> list[str | Path]:
    return [ground.torch_python(), ground.PROGRAMS / "torch_train.py", "--graphs", str(REPLAYS), *options]


def _environment(directory: Path) -> dict[str, str]:
    # PyTorch brings its own runtime, which the test's library path must not replace.
    mock = str(ground.part("mock"))
    return {
        "LD_LIBRARY_PATH": mock,
        "TRITON_LIBCUDA_PATH": mock,
        "TRITON_CACHE_DIR": str(directory / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(directory / "inductor"),
    }


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Metrics, Truth]:
    directory = tmp_path_factory.mktemp("torch_first")
    mock = {"LD_LIBRARY_PATH": str(ground.part("mock"))}
    with Agent(naming.arguments(directory), directory, mock) as agent:
        agent.wait_attached()
        with Program(_command("--compile"), directory, _environment(directory)) as program:
            program.ready(STARTS_S)
            program.run_phase(STARTS_S)
            truth = program.finish()
        agent.stop()
    everything = read_metrics(directory / "out")
    comparison.assert_nothing_lost(everything, truth.pid)
    return everything.of(truth.pid), truth


def test_every_launch_is_named_when_the_agent_was_first(first: tuple[Metrics, Truth]) -> None:
    exported, truth = first

    assert len(truth.launches) > 30
    assert any(name.startswith("triton_") for name in truth.launches)
    assert truth.graph_launches == REPLAYS
    launches, graphs = naming.of_launches(exported, truth), naming.of_graphs(exported, truth)
    assert (launches.wrong, graphs.wrong) == ({}, {})
    assert launches.share >= FIRST
    assert graphs.share >= FIRST


def test_every_call_and_byte_is_counted(first: tuple[Metrics, Truth]) -> None:
    exported, truth = first

    comparison.assert_totals(exported, truth)
    comparison.assert_memory(exported, truth)
    assert exported.total("gpu.cuda.graph.kernel.calls") == truth.graph_kernels == truth.graphed.total()


@pytest.mark.parametrize(
    ("script", "options", "replays"),
    [
        ("torch_train.py", ("--graphs", str(REPLAYS)), REPLAYS),
        ("torch_train.py", ("--graphs", str(REPLAYS), "--compile"), REPLAYS),
        ("torch_shapes.py", (), 0),
    ],
    ids=["training", "compiled", "shapes"],
)
def test_launches_are_named_when_the_agent_comes_late(
    script: str, options: tuple[str, ...], replays: int, tmp_path: Path
) -> None:
    command = [ground.torch_python(), ground.PROGRAMS / script, "--phases", "3", *options]
    with Program(command, tmp_path, _environment(tmp_path)) as program:
        program.ready(STARTS_S)
        program.run_phase(STARTS_S)
        program.ready()
        before = program.truth_now()
        with Agent(["--pid", str(program.pid), *naming.arguments(tmp_path)], tmp_path) as agent:
            agent.wait_attached()
            program.run_phase()
            program.ready()
            after = program.truth_now()
            naming.wait_exported(tmp_path / "out", after - before)
            agent.stop(SETTLES_S)
        program.run_phase()
        program.finish()

    exported, truth = read_metrics(tmp_path / "out").of(after.pid), after - before
    assert truth.graph_launches == replays
    assert any(name.startswith("triton_") for name in truth.launches) == ("--compile" in options)
    launches, graphs = naming.of_launches(exported, truth), naming.of_graphs(exported, truth)
    assert (launches.wrong, graphs.wrong) == ({}, {})
    assert launches.share >= LATE
    assert graphs.share >= LATE
