"""Exact counts of unmodified programs on NVIDIA's real runtimes, and the names of their kernels.

Every launch carries the name that the driver knows, or says that it has none; never another one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e import comparison, ground, naming
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program
from tests.e2e.truth import Truth

VARIANTS = ("13_shared", "13_static", "13_stripped", "13_perthread", "12_shared", "12_static")
FIRST, LATE = 0.99, 0.90
Seen = tuple[Metrics, Truth]
"""What was exported of a program, and what happened in it."""


def _first(command: list[str | Path], directory: Path, environment: Mapping[str, str]) -> Seen:
    """Let the agent be there before the program, and return what it says of the whole run."""
    (seen,) = _all_first([command], directory, environment)
    return seen


def _all_first(commands: Sequence[Sequence[str | Path]], directory: Path, environment: Mapping[str, str]) -> list[Seen]:
    """Do so with several programs, which run side by side under one agent."""
    with (
        Agent(naming.arguments(directory), directory, {"LD_LIBRARY_PATH": str(ground.part("mock"))}) as agent,
        ExitStack() as running,
    ):
        agent.wait_attached()
        programs = [running.enter_context(Program(command, directory, environment)) for command in commands]
        _run_phases(programs)
        truths = [program.finish() for program in programs]
        agent.stop()
    everything = read_metrics(directory / "out")
    comparison.assert_nothing_lost(everything, *(truth.pid for truth in truths))
    return [(everything.of(truth.pid), truth) for truth in truths]


def _run_phases(programs: Sequence[Program]) -> None:
    """Let each program run a phase, at once."""
    for program in programs:
        program.ready(timeout=180)
    for program in programs:
        program.go()
    for program in programs:
        program.event("phase", timeout=240)


def _late(
    command: list[str | Path],
    directory: Path,
    environment: Mapping[str, str],
    agents: Mapping[str, str] | None = None,
    driver: Path | None = None,
) -> Seen:
    """Attach after the first of three phases, in which every kernel was used, and return what happened in the second.

    The program lives on while the agent reads its files for the first time.
    """
    (seen,) = _all_late([command], directory, environment, agents, driver)
    return seen


def _all_late(
    commands: Sequence[Sequence[str | Path]],
    directory: Path,
    environment: Mapping[str, str],
    agents: Mapping[str, str] | None = None,
    driver: Path | None = None,
) -> list[Seen]:
    """Do so with several programs, which run side by side under one agent."""
    with ExitStack() as running:
        programs = [running.enter_context(Program(command, directory, environment)) for command in commands]
        _run_phases(programs)
        for program in programs:
            program.ready()
        before = [program.truth_now() for program in programs]
        pids = [str(program.pid) for program in programs]
        with Agent(["--pid", *pids, *naming.arguments(directory)], directory, agents) as agent:
            agent.wait_attached(driver=driver)
            for program in programs:
                program.go()
            for program in programs:
                program.event("phase", timeout=240)
                program.ready()
            did = [program.truth_now() - earlier for program, earlier in zip(programs, before, strict=True)]
            for truth in did:
                naming.wait_exported(directory / "out", truth)
            agent.stop()
        for program in programs:
            program.run_phase(timeout=240)
            program.finish()
    everything = read_metrics(directory / "out")
    comparison.assert_nothing_lost(everything, *(truth.pid for truth in did))
    return [(everything.of(truth.pid), truth) for truth in did]


def _nvcc(variant: str) -> Path:
    return ground.part("cuprograms") / f"runtime_calls_{variant}"


def _built() -> list[str]:
    return [variant for variant in VARIANTS if _nvcc(variant).exists()]


@pytest.fixture(scope="module")
def from_start(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """What one agent saw of all programs that nvcc built, from their start."""
    commands = [[_nvcc(variant), "1", "3000", "0.5"] for variant in _built()]
    return dict(zip(_built(), _all_first(commands, tmp_path_factory.mktemp("first"), {}), strict=True))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """What one agent saw of all programs that nvcc built, which ran before it."""
    commands = [[_nvcc(variant), "3", "1000"] for variant in _built()]
    return dict(zip(_built(), _all_late(commands, tmp_path_factory.mktemp("late"), {}), strict=True))


def _of(seen: Mapping[str, Seen], variant: str) -> Seen:
    if variant not in seen:
        pytest.skip(f"runtime_calls_{variant} was not built: the part cuda12 is missing")
    return seen[variant]


def _assert_counted(exported: Metrics, truth: Truth) -> None:
    comparison.assert_totals(exported, truth)
    comparison.assert_launches(exported, truth)
    assert +exported.by(comparison.ALLOCATED, "cuda.memory.type") == +truth.allocated


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_nvcc_program_is_counted_and_named_from_its_start(from_start: dict[str, Seen], variant: str) -> None:
    exported, truth = _of(from_start, variant)

    assert truth.launches["_ZN4shop4axpyEifPKfPf"] == 3001
    assert truth.launches["_Z9cooperatePi"] == 1
    _assert_counted(exported, truth)
    assert set(truth.launches) >= {"_ZN4shop4axpyEifPKfPf", "_Z4fillIfEvPT_S0_", "_Z9cooperatePi"}
    assert naming.of_launches(exported, truth).wrong == {}
    assert naming.of_launches(exported, truth).share >= FIRST
    assert naming.of_graphs(exported, truth).wrong == {}
    assert naming.of_graphs(exported, truth).share >= FIRST


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_running_nvcc_program_is_counted_and_named(running: dict[str, Seen], variant: str) -> None:
    exported, truth = _of(running, variant)

    assert truth.launches["_ZN4shop4axpyEifPKfPf"] == 1001
    _assert_counted(exported, truth)
    assert naming.of_launches(exported, truth).wrong == {}
    assert naming.of_launches(exported, truth).share >= LATE
    assert set(truth.graphed) == {"_Z4fillIiEvPT_S0_"}
    assert naming.of_graphs(exported, truth).wrong == {}
    assert naming.of_graphs(exported, truth).share >= LATE


def test_cupys_kernels_are_counted_and_named_from_its_start(tmp_path: Path) -> None:
    command = [ground.part("cupy"), ground.PROGRAMS / "cupy_calls.py", "--launches", "200"]

    exported, truth = _first(command, tmp_path, {"CUPY_CACHE_DIR": str(tmp_path / "cupy")})

    assert truth.launches["own_kernel"] == 200
    assert len(truth.launches) > 1
    comparison.assert_totals(exported, truth)
    assert naming.of_launches(exported, truth).wrong == {}
    assert naming.of_launches(exported, truth).share >= FIRST


def _cache(directory: Path) -> dict[str, str]:
    """Return the agent's environment with a cache of its own, in which nothing is known of any driver."""
    return {"XDG_CACHE_HOME": str(directory / "cache")}


def test_cupys_kernels_from_before_the_agent_are_counted_and_named(tmp_path: Path) -> None:
    command = [ground.part("cupy"), ground.PROGRAMS / "cupy_calls.py", "--launches", "500", "--phases", "3"]

    exported, truth = _late(command, tmp_path, {"CUPY_CACHE_DIR": str(tmp_path / "cupy")}, _cache(tmp_path))

    assert truth.launches["own_kernel"] == 500
    assert exported.total(comparison.LAUNCHES) > 500
    comparison.assert_totals(exported, truth)
    assert naming.of_launches(exported, truth).wrong == {}
    assert naming.of_launches(exported, truth).share >= LATE


RECORDS = ["statistics", "direct", "far", "inline", "decoys"]
"""Ways in which the mock driver's records lead to names; the agent is told none."""


def _kernels(phases: int, *options: str) -> list[str | Path]:
    return [ground.part("programs") / "late_kernels", str(phases), *options]


def _with_driver(driver: Path, **more: str) -> dict[str, str]:
    """Return the environment of a program of that driver: what others of this host show of theirs says nothing of it."""
    return {"LD_LIBRARY_PATH": f"{driver}:{ground.library_path()}", **more}


def _show(
    directory: Path,
    environment: Mapping[str, str],
    agents: Mapping[str, str],
    driver: Path,
    *,
    leads_to_names: bool = True,
) -> None:
    """Let an agent see a program from its start, which lives until its driver's records have led to names, or could have."""
    with Agent(naming.arguments(directory), directory, {"LD_LIBRARY_PATH": str(driver), **agents}) as agent:
        agent.wait_attached(driver=driver)
        with Program(_kernels(2, "8"), directory, environment) as program:
            program.ready()
            program.run_phase()
            if leads_to_names:
                agent.wait_for(rf"names of kernels in {driver}/libcuda\S*: \[")
            else:
                time.sleep(2)
            program.ready()
            program.run_phase()
            program.finish()
        agent.stop()


@pytest.mark.parametrize("record", RECORDS)
def test_kernels_are_named_by_device_code_alone_however_the_driver_keeps_names(record: str, tmp_path: Path) -> None:
    exported, truth = _late(_kernels(3, "8"), tmp_path, {"MOCKCUDA_RECORD": record}, _cache(tmp_path))

    assert len(truth.launches) == 10
    assert naming.of_launches(exported, truth) == naming.Naming(truth.launches.total(), truth.launches.total(), {})


def test_two_kernels_alone_are_counted_and_named_by_device_code(tmp_path: Path) -> None:
    command = [sys.executable, ground.PROGRAMS / "ctypes_calls.py", "--launches", "2000", "--phases", "3"]

    exported, truth = _late(command, tmp_path, {}, _cache(tmp_path))

    assert truth.launches == {"embed_tokens": 2000, "attend": 500}
    comparison.assert_all(exported, truth)
    assert naming.of_launches(exported, truth) == naming.Naming(truth.launches.total(), truth.launches.total(), {})


@pytest.mark.parametrize("record", RECORDS)
def test_what_one_program_showed_of_a_driver_names_the_next_ones_kernels(record: str, tmp_path: Path) -> None:
    driver = ground.another_driver(tmp_path / "driver")
    environment = _with_driver(driver, MOCKCUDA_RECORD=record)
    (first := tmp_path / "first").mkdir()
    _show(first, environment, _cache(tmp_path), driver)

    # Of one kernel alone nothing could be concluded.
    (second := tmp_path / "second").mkdir()
    exported, truth = _late(_kernels(3, "1", "one"), second, environment, _cache(tmp_path), driver)

    assert len(truth.launches) == 1
    assert naming.of_launches(exported, truth) == naming.Naming(truth.launches.total(), truth.launches.total(), {})


def test_where_no_record_leads_to_a_name_there_is_none(tmp_path: Path) -> None:
    driver = ground.another_driver(tmp_path / "driver")
    environment = _with_driver(driver, MOCKCUDA_RECORD="hidden")
    (first := tmp_path / "first").mkdir()
    _show(first, environment, _cache(tmp_path), driver, leads_to_names=False)

    for number, cache in enumerate((tmp_path, tmp_path / "other")):
        (late := tmp_path / f"late{number}").mkdir()
        exported, truth = _late(_kernels(3, "8"), late, environment, _cache(cache), driver)
        assert naming.of_launches(exported, truth) == naming.Naming(truth.launches.total(), 0, {})


@pytest.mark.parametrize("known", [True, False], ids=["known driver", "unknown driver"])
@pytest.mark.parametrize("later", [True, False], ids=["later", "at once"])
def test_a_handle_that_is_given_out_again_gets_the_new_kernels_name(later: bool, known: bool, tmp_path: Path) -> None:
    driver = ground.another_driver(tmp_path / "driver")
    environment = _with_driver(driver, MOCKCUDA_REUSE="1")
    if known:
        (first := tmp_path / "first").mkdir()
        _show(first, environment, _cache(tmp_path), driver)

    (late := tmp_path / "late").mkdir()
    with Program(_kernels(4, "8", "replace"), late, environment) as program:
        program.ready()
        program.run_phase()
        program.ready()
        before = program.truth_now()
        with Agent(["--pid", str(program.pid), *naming.arguments(late)], late, _cache(tmp_path)) as agent:
            agent.wait_attached(driver=driver)
            program.run_phase()
            program.ready()
            if later:
                naming.wait_exported(late / "out", program.truth_now() - before)
            program.run_phase()
            program.ready()
            after = program.truth_now()
            naming.wait_exported(late / "out", after - before)
            agent.stop()
        program.run_phase()
        program.finish()

    exported, truth = read_metrics(late / "out").of(after.pid), after - before
    assert sum(name.startswith("replaced_") for name in truth.launches) == 8
    named = naming.of_launches(exported, truth)
    assert named.wrong == {}
    # What was unloaded before its record could be read stays without a name.
    assert named.share == 1 if later else named.named >= sum(n + 1 for n in range(8))


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


def test_ctypes_programs_are_counted_and_named_from_their_start(tmp_path: Path) -> None:
    command = [sys.executable, ground.PROGRAMS / "ctypes_calls.py", "--launches", "500"]

    exported, truth = _first(command, tmp_path, {})

    comparison.assert_all(exported, truth)
    assert {s.resource["service.name"] for s in exported.samples} == {"ctypes_calls"}
    assert naming.of_launches(exported, truth) == naming.Naming(truth.launches.total(), truth.launches.total(), {})
