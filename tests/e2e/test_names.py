"""Exact counts of unmodified programs on NVIDIA's real runtimes, and the names of their kernels.

Every launch carries the name that the driver knows, or says that it has none; never another one.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e import comparison, ground, naming
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program
from tests.e2e.truth import Truth

VARIANTS = ("13_shared", "13_static", "13_stripped", "13_perthread", "12_shared", "12_static")
FIRST, LATE = 0.99, 0.90
Seen = tuple[Metrics, Truth]
"""What was exported of a program, and what happened in it."""


class Start(NamedTuple):
    """A program that an agent observes among others."""

    command: Sequence[str | Path]
    environment: Mapping[str, str] = {}
    driver: Path | None = None
    """Its own one's directory."""


def _started(starts: Mapping[str, Start], directory: Path, running: ExitStack) -> dict[str, Program]:
    return {name: running.enter_context(Program(s.command, directory, s.environment)) for name, s in starts.items()}


def _first(starts: Mapping[str, Start], directory: Path) -> dict[str, Seen]:
    """Let one agent be there before the programs, and return what it says of the whole run of each."""
    with (
        Agent(naming.arguments(directory), directory, {"LD_LIBRARY_PATH": str(ground.part("mock"))}) as agent,
        ExitStack() as running,
    ):
        agent.wait_attached()
        programs = _started(starts, directory, running)
        _run_phases(programs.values())
        truths = {name: program.finish() for name, program in programs.items()}
        agent.stop()
    return _seen(directory, truths)


def _seen(directory: Path, truths: Mapping[str, Truth]) -> dict[str, Seen]:
    everything = read_metrics(directory / "out")
    comparison.assert_nothing_lost(everything, *(truth.pid for truth in truths.values()))
    return {name: (everything.of(truth.pid), truth) for name, truth in truths.items()}


def _run_phases(programs: Collection[Program]) -> None:
    """Let each program run a phase, at once."""
    for program in programs:
        program.ready(timeout=180)
    for program in programs:
        program.go()
    for program in programs:
        program.event("phase", timeout=240)


def _late(starts: Mapping[str, Start], directory: Path, agents: Mapping[str, str] | None = None) -> dict[str, Seen]:
    """Attach one agent after the first of three phases, in which every kernel was used, and return what happened in the second.

    The programs live on while the agent reads their files for the first time.
    """
    with ExitStack() as running:
        programs = _started(starts, directory, running)
        _run_phases(programs.values())
        for program in programs.values():
            program.ready()
        before = {name: program.truth_now() for name, program in programs.items()}
        pids = [str(program.pid) for program in programs.values()]
        with Agent(["--pid", *pids, *naming.arguments(directory)], directory, agents) as agent:
            for start in starts.values():
                agent.wait_attached(driver=start.driver)
            for program in programs.values():
                program.go()
            for program in programs.values():
                program.event("phase", timeout=240)
                program.ready()
            did = {name: program.truth_now() - before[name] for name, program in programs.items()}
            for name, truth in did.items():
                naming.wait_exported(directory / "out", truth, of=name)
            agent.stop()
        for program in programs.values():
            program.run_phase(timeout=240)
            program.finish()
    return _seen(directory, did)


def _nvcc(variant: str) -> Path:
    return ground.part("cuprograms") / f"runtime_calls_{variant}"


def _cupy(directory: Path, *options: str, driver: Path | None = None) -> dict[str, Start]:
    """Return the start of a program of CuPy's; none where it cannot be had, which the test says."""
    with suppress(pytest.skip.Exception):
        command = [ground.part("cupy"), ground.PROGRAMS / "cupy_calls.py", *options]
        environment = {"CUPY_CACHE_DIR": str(directory / "cupy"), **(_with_driver(driver) if driver else {})}
        return {"cupy": Start(command, environment, driver)}
    return {}


def _ctypes(*options: str) -> list[str | Path]:
    return [sys.executable, ground.PROGRAMS / "ctypes_calls.py", *options]


def _kernels(phases: int, *options: str) -> list[str | Path]:
    return [ground.part("programs") / "late_kernels", str(phases), *options]


def _with_driver(driver: Path, **more: str) -> dict[str, str]:
    """Return the environment of a program of that driver: what others of this host show of theirs says nothing of it."""
    return {"LD_LIBRARY_PATH": f"{driver}:{ground.library_path()}", **more}


def _cache(directory: Path) -> dict[str, str]:
    """Return the agent's environment with a cache of its own, in which nothing is known of any driver."""
    return {"XDG_CACHE_HOME": str(directory / "cache")}


def _built() -> list[str]:
    return [variant for variant in VARIANTS if _nvcc(variant).exists()]


@pytest.fixture(scope="module")
def from_start(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """What one agent saw of all programs on runtimes and on the driver alone, from their start."""
    directory = tmp_path_factory.mktemp("first")
    starts = {variant: Start([_nvcc(variant), "1", "3000", "0.5"]) for variant in _built()}
    starts |= _cupy(directory, "--launches", "200")
    starts["ctypes"] = Start(_ctypes("--launches", "500"))
    return _first(starts, directory)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """What one agent saw of all programs that nvcc built, which ran before it."""
    starts = {variant: Start([_nvcc(variant), "3", "1000"]) for variant in _built()}
    return _late(starts, tmp_path_factory.mktemp("late"))


RECORDS = ["statistics", "direct", "far", "inline", "decoys"]
"""Ways in which the mock driver's records lead to names; the agent is told none."""
HIDDEN = "hidden"
"""The way that leads to none."""
REUSED = {later: f"reused {'later' if later else 'at once'}" for later in (False, True)}
"""Drivers that give handles out again."""


@pytest.fixture(scope="module")
def unknown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """What one agent that knew nothing of their drivers saw of programs that ran before it, each with a driver of its own."""
    directory = tmp_path_factory.mktemp("unknown")
    drivers = {name: ground.another_driver(directory / name) for name in (*RECORDS, HIDDEN, "ctypes", "cupy")}
    starts = {
        way: Start(_kernels(3, "8"), _with_driver(drivers[way], MOCKCUDA_RECORD=way), drivers[way])
        for way in (*RECORDS, HIDDEN)
    }
    two = _ctypes("--launches", "2000", "--phases", "3")
    starts["ctypes"] = Start(two, _with_driver(drivers["ctypes"]), drivers["ctypes"])
    starts |= _cupy(directory, "--launches", "500", "--phases", "3", driver=drivers["cupy"])
    return _late(starts, directory, _cache(directory))


class Shown(NamedTuple):
    """Drivers that programs showed an agent, which wrote into its cache what leads to names in each."""

    drivers: Mapping[str, Path]
    cache: Mapping[str, str]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Let one agent see a program of each driver from its start, which lives until its driver's records have led to names, or could have."""
    directory = tmp_path_factory.mktemp("shown")
    drivers = {
        name: ground.another_driver(directory / name.replace(" ", "_")) for name in (*RECORDS, HIDDEN, *REUSED.values())
    }
    more = {name: {"MOCKCUDA_RECORD": name} for name in (*RECORDS, HIDDEN)}
    more |= {name: {"MOCKCUDA_REUSE": "1"} for name in REUSED.values()}
    starts = {
        name: Start(_kernels(2, "8"), _with_driver(driver, **more[name]), driver) for name, driver in drivers.items()
    }
    # It looks at these drivers before a program of them is there.
    paths = {"LD_LIBRARY_PATH": ":".join(map(str, drivers.values()))}
    with (
        Agent(naming.arguments(directory), directory, {**paths, **_cache(directory)}) as agent,
        ExitStack() as running,
    ):
        for driver in drivers.values():
            agent.wait_attached(driver=driver)
        programs = _started(starts, directory, running)
        _run_phases(programs.values())
        for name, driver in drivers.items():
            if name != HIDDEN:
                agent.wait_for(rf"names of kernels in {driver}/libcuda\S*: \[")
        time.sleep(2)
        _run_phases(programs.values())
        for program in programs.values():
            program.finish()
        agent.stop()
        assert not re.search(rf"names of kernels in {drivers[HIDDEN]}/libcuda\S*: \[", agent.error_text)
    return Shown(drivers, _cache(directory))


@pytest.fixture(scope="module")
def known(shown: Shown, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """What one agent that knew of their drivers what others had shown saw of programs that ran before it."""
    starts = {
        # Of one kernel alone nothing could be concluded.
        way: Start(
            _kernels(3, *(["8"] if way == HIDDEN else ["1", "one"])),
            _with_driver(shown.drivers[way], MOCKCUDA_RECORD=way),
            shown.drivers[way],
        )
        for way in (*RECORDS, HIDDEN)
    }
    return _late(starts, tmp_path_factory.mktemp("known"), shown.cache)


@pytest.fixture(scope="module")
def ended(shown: Shown, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """What one agent that knew of their drivers what others had shown saw of programs that ran before it and end with their launches."""
    directory = tmp_path_factory.mktemp("ended")
    with ExitStack() as running:
        programs = {
            way: running.enter_context(
                Program(_kernels(2, "8"), directory, _with_driver(shown.drivers[way], MOCKCUDA_RECORD=way))
            )
            for way in (*RECORDS, HIDDEN)
        }
        _run_phases(programs.values())
        for program in programs.values():
            program.ready()
        before = {way: program.truth_now() for way, program in programs.items()}
        pids = [str(program.pid) for program in programs.values()]
        with Agent(["--pid", *pids, *naming.arguments(directory)], directory, shown.cache) as agent:
            for way in programs:
                agent.wait_attached(driver=shown.drivers[way])
            for program in programs.values():
                program.go()
            did = {way: program.finish() - before[way] for way, program in programs.items()}
            agent.stop()
    return _seen(directory, did)


@pytest.fixture(scope="module")
def reused(shown: Shown, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[bool, bool], Seen]:
    """What one agent saw of programs that unload their kernels, later or at once, with drivers that are known or not."""
    directory = tmp_path_factory.mktemp("reused")
    drivers = {
        (later, known): shown.drivers[name] if known else ground.another_driver(directory / name.replace(" ", "_"))
        for later, name in REUSED.items()
        for known in (True, False)
    }
    with ExitStack() as running:
        programs = {
            case: running.enter_context(
                Program(_kernels(4, "8", "replace"), directory, _with_driver(driver, MOCKCUDA_REUSE="1"))
            )
            for case, driver in drivers.items()
        }
        _run_phases(programs.values())
        for program in programs.values():
            program.ready()
        before = {case: program.truth_now() for case, program in programs.items()}
        pids = [str(program.pid) for program in programs.values()]
        agents = ["--pid", *pids, *naming.arguments(directory)]
        did = {}
        with Agent(agents, directory, shown.cache) as agent:
            for driver in drivers.values():
                agent.wait_attached(driver=driver)
            for (later, known), program in programs.items():
                program.run_phase()
                program.ready()
                who = f"{REUSED[later]}, {'known' if known else 'unknown'} driver"
                if later:
                    naming.wait_exported(directory / "out", program.truth_now() - before[later, known], of=who)
                program.run_phase()
                program.ready()
                did[later, known] = program.truth_now() - before[later, known]
                naming.wait_exported(directory / "out", did[later, known], of=who)
            agent.stop()
        for program in programs.values():
            program.run_phase()
            program.finish()
    everything = read_metrics(directory / "out")
    return {case: (everything.of(truth.pid), truth) for case, truth in did.items()}


def _of(seen: Mapping[str, Seen], variant: str) -> Seen:
    if variant not in seen:
        pytest.skip(f"runtime_calls_{variant} was not built: the part cuda12 is missing")
    return seen[variant]


def _assert_every_name(exported: Metrics, truth: Truth) -> None:
    assert naming.of_launches(exported, truth) == naming.Naming(truth.launches.total(), truth.launches.total(), {})


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


def test_cupys_kernels_are_counted_and_named_from_its_start(from_start: dict[str, Seen]) -> None:
    ground.part("cupy")
    exported, truth = from_start["cupy"]

    assert truth.launches["own_kernel"] == 200
    assert len(truth.launches) > 1
    comparison.assert_totals(exported, truth)
    assert naming.of_launches(exported, truth).wrong == {}
    assert naming.of_launches(exported, truth).share >= FIRST


def test_cupys_kernels_from_before_the_agent_are_counted_and_named(unknown: dict[str, Seen]) -> None:
    ground.part("cupy")
    exported, truth = unknown["cupy"]

    assert truth.launches["own_kernel"] == 500
    assert exported.total(comparison.LAUNCHES) > 500
    comparison.assert_totals(exported, truth)
    assert naming.of_launches(exported, truth).wrong == {}
    assert naming.of_launches(exported, truth).share >= LATE


@pytest.mark.parametrize("record", RECORDS)
def test_kernels_are_named_by_device_code_alone_however_the_driver_keeps_names(
    unknown: dict[str, Seen], record: str
) -> None:
    exported, truth = unknown[record]

    assert len(truth.launches) == 10
    _assert_every_name(exported, truth)


def test_two_kernels_alone_are_counted_and_named_by_device_code(unknown: dict[str, Seen]) -> None:
    exported, truth = unknown["ctypes"]

    assert truth.launches == {"embed_tokens": 2000, "attend": 500}
    comparison.assert_all(exported, truth)
    _assert_every_name(exported, truth)


@pytest.mark.parametrize("record", RECORDS)
def test_what_one_program_showed_of_a_driver_names_the_next_ones_kernels(known: dict[str, Seen], record: str) -> None:
    exported, truth = known[record]

    assert len(truth.launches) == 1
    _assert_every_name(exported, truth)


@pytest.mark.parametrize("record", RECORDS)
def test_a_program_that_ends_with_its_launches_has_its_kernels_names(ended: dict[str, Seen], record: str) -> None:
    exported, truth = ended[record]

    assert len(truth.launches) == 10
    _assert_every_name(exported, truth)


def test_where_no_record_leads_to_a_name_there_is_none(
    known: dict[str, Seen], unknown: dict[str, Seen], ended: dict[str, Seen]
) -> None:
    for exported, truth in (known[HIDDEN], unknown[HIDDEN], ended[HIDDEN]):
        assert len(truth.launches) == 10
        assert naming.of_launches(exported, truth) == naming.Naming(truth.launches.total(), 0, {})


@pytest.mark.parametrize("is_known", [True, False], ids=["known driver", "unknown driver"])
@pytest.mark.parametrize("later", [True, False], ids=["later", "at once"])
def test_a_handle_that_is_given_out_again_gets_the_new_kernels_name(
    reused: dict[tuple[bool, bool], Seen], later: bool, is_known: bool
) -> None:
    exported, truth = reused[later, is_known]
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


def test_ctypes_programs_are_counted_and_named_from_their_start(from_start: dict[str, Seen]) -> None:
    exported, truth = from_start["ctypes"]

    comparison.assert_all(exported, truth)
    assert {s.resource["service.name"] for s in exported.samples} == {"ctypes_calls"}
    _assert_every_name(exported, truth)
