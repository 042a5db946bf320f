"""Every launch carries the name that the driver knows, or says that it has none; never another one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e import comparison, ground, naming
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program
from tests.e2e.test_runtimes import VARIANTS
from tests.e2e.truth import Truth

FIRST, LATE = 0.99, 0.90


def _first(command: list[str | Path], directory: Path, environment: Mapping[str, str]) -> tuple[Metrics, Truth]:
    """Let the agent be there before the program, and return what it says of the whole run."""
    with Agent(naming.arguments(directory), directory, {"LD_LIBRARY_PATH": str(ground.part("mock"))}) as agent:
        agent.wait_attached()
        with Program(command, directory, environment) as program:
            program.ready(timeout=180)
            program.run_phase(timeout=240)
            truth = program.finish()
        agent.stop()
    everything = read_metrics(directory / "out")
    comparison.assert_nothing_lost(everything)
    return everything.of(truth.pid), truth


def _late(command: list[str | Path], directory: Path, environment: Mapping[str, str]) -> tuple[Metrics, Truth]:
    """Attach after the first of three phases, in which every kernel was used, and return what happened in the second.

    The program lives on while the agent reads its files for the first time.
    """
    with Program(command, directory, environment) as program:
        program.ready(timeout=180)
        program.run_phase(timeout=240)
        program.ready()
        before = program.truth_now()
        with Agent(["--pid", str(program.pid), *naming.arguments(directory)], directory) as agent:
            agent.wait_attached()
            program.run_phase(timeout=240)
            program.ready()
            after = program.truth_now()
            agent.stop()
        program.run_phase(timeout=240)
        program.finish()
    return read_metrics(directory / "out").of(after.pid), after - before


def _nvcc(variant: str) -> Path:
    program = ground.part("cuprograms") / f"runtime_calls_{variant}"
    if not program.exists():
        pytest.skip(f"{program.name} was not built: the part cuda12 is missing")
    return program


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_nvcc_program_is_named_from_its_start(variant: str, tmp_path: Path) -> None:
    exported, truth = _first([_nvcc(variant), "1", "1000", "0.5"], tmp_path, {})

    assert set(truth.launches) >= {"_ZN4shop4axpyEifPKfPf", "_Z4fillIfEvPT_S0_", "_Z9cooperatePi"}
    assert naming.of_launches(exported, truth).wrong == {}
    assert naming.of_launches(exported, truth).share >= FIRST
    assert naming.of_graphs(exported, truth).wrong == {}
    assert naming.of_graphs(exported, truth).share >= FIRST


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_running_nvcc_program_is_named(variant: str, tmp_path: Path) -> None:
    exported, truth = _late([_nvcc(variant), "3", "1000"], tmp_path, {})

    assert naming.of_launches(exported, truth).wrong == {}
    assert naming.of_launches(exported, truth).share >= LATE
    assert set(truth.graphed) == {"_Z4fillIiEvPT_S0_"}
    assert naming.of_graphs(exported, truth).wrong == {}
    assert naming.of_graphs(exported, truth).share >= LATE


def test_cupys_kernels_are_named_from_its_start(tmp_path: Path) -> None:
    command = [ground.part("cupy"), ground.PROGRAMS / "cupy_calls.py", "--launches", "200"]

    exported, truth = _first(command, tmp_path, {"CUPY_CACHE_DIR": str(tmp_path / "cupy")})

    assert truth.launches["own_kernel"] == 200
    assert len(truth.launches) > 1
    assert naming.of_launches(exported, truth).wrong == {}
    assert naming.of_launches(exported, truth).share >= FIRST


def test_cupys_kernels_from_before_the_agent_are_never_named_wrongly(tmp_path: Path) -> None:
    command = [ground.part("cupy"), ground.PROGRAMS / "cupy_calls.py", "--launches", "200", "--phases", "3"]

    exported, truth = _late(command, tmp_path, {"CUPY_CACHE_DIR": str(tmp_path / "cupy")})

    # Their names stood only in the driver calls that nobody saw: handles are the honest answer.
    assert truth.launches["own_kernel"] == 200
    assert naming.of_launches(exported, truth).wrong == {}


def test_names_are_demangled_where_nobody_asks_otherwise(tmp_path: Path) -> None:
    with Program([_nvcc("13_static"), "1", "10"], tmp_path) as program:
        program.ready()
        arguments = ["--pid", str(program.pid), "--output", f"file:{tmp_path / 'out'}"]
        with Agent(arguments, tmp_path) as agent:
            agent.wait_attached()
            program.run_phase()
            program.finish()
            agent.stop()

    exported = read_metrics(tmp_path / "out").of(program.pid)
    names = exported.by(comparison.LAUNCHES, "cuda.kernel.name")
    assert {"shop::axpy(int, float, float const*, float*)", "void fill<float>(float*, float)"} <= names.keys()


def test_ctypes_programs_are_named(tmp_path: Path) -> None:
    command = [sys.executable, ground.PROGRAMS / "ctypes_calls.py", "--launches", "500"]

    exported, truth = _first(command, tmp_path, {})

    assert naming.of_launches(exported, truth) == naming.Naming(truth.launches.total(), truth.launches.total(), {})
