"""Is a call counted once where something between a program and the driver hands it on, and not at all where that refuses it?"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e import comparison, ground
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program
from tests.e2e.truth import Truth

LAUNCHES = 1_400


@dataclass(frozen=True)
class Shim:
    """One that a program runs through, and how."""

    name: str
    is_preloaded: bool
    variables: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return self.name

    def command(self, directory: Path) -> tuple[list[Path | str], dict[str, str]]:
        """Build it; return a program's command, and the environment in which that runs through it."""
        driver = ground.own_driver(directory / "driver")
        linked = built(directory, "linked.c", "linked", [f"-L{driver}", "-l:libcuda.so.1"])
        if self.is_preloaded:
            shim = built(directory, "shim.c", "libvgpu.so", ["-shared", "-fPIC", "-ldl"])
            environment = {"LD_LIBRARY_PATH": str(driver), "LD_PRELOAD": str(shim)}
        else:
            # As the linker finds what programs are linked against; it opens the driver by its path.
            real = os.fspath(driver / "libcuda.so.1")
            flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", f'-DREAL="{real}"', "-ldl"]
            environment = {"LD_LIBRARY_PATH": str(built(directory, "shim.c", "shim/libcuda.so.1", flags).parent)}
        return [linked, str(LAUNCHES)], {**environment, **self.variables}


PRELOADED = [
    Shim("by-name", is_preloaded=True),
    Shim("by-cuGetProcAddress", is_preloaded=True, variables={"SHIM_PROCS": "1"}),
    Shim("by-another-thread", is_preloaded=True, variables={"SHIM_THREAD": "1"}),
    Shim("some-refused", is_preloaded=True, variables={"SHIM_REFUSES": "3"}),
    Shim("twice", is_preloaded=True, variables={"SHIM_TWICE": "1"}),
]
IN_PLACE = [
    Shim("in-place-all", is_preloaded=False),
    Shim("in-place-some-refused", is_preloaded=False, variables={"SHIM_REFUSES": "3"}),
]


def built(directory: Path, source: str, out: str, flags: Sequence[str]) -> Path:
    made = directory / out
    made.parent.mkdir(exist_ok=True)
    subprocess.run(["gcc", "-O1", ground.PROGRAMS / source, "-o", made, *flags], check=True)
    return made


@dataclass(frozen=True)
class Outcome:
    """What was exported, and what each shim's programs say of themselves: how many launches were accepted, and all they did."""

    exported: Metrics
    said: Mapping[Shim, Sequence[tuple[int, Truth]]]


@pytest.fixture(scope="module")
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Run a program twice through each shim of the tests that run, once from before the agent comes."""
    params = (getattr(item, "callspec", None) for item in request.session.items if item.path == request.path)
    shims = [one.params["shim"] for one in params if one is not None]
    here = tmp_path_factory.mktemp("agent")
    said: dict[Shim, list[tuple[int, Truth]]] = {}
    with ExitStack() as stack:
        runs, early = {}, {}
        for shim in shims:
            directory = tmp_path_factory.mktemp(shim.name)
            command, environment = shim.command(directory)
            runs[shim] = command, directory, environment
            early[shim] = stack.enter_context(Program(*runs[shim]))
        for program in early.values():
            program.ready()
        agent = stack.enter_context(Agent(["--output", f"file:{here / 'out'}"], here))
        for _, directory, _ in runs.values():
            agent.wait_attached(driver=directory / "driver")
        for shim, run in runs.items():
            with Program(*run) as late:
                late.ready()
                accepted = [int(str(program.run_phase()["accepted"])) for program in (early[shim], late)]
                said[shim] = list(zip(accepted, (early[shim].finish(), late.finish()), strict=True))
        agent.stop()
    return Outcome(read_metrics(here / "out"), said)


def assert_counted_once(shim: Shim, outcome: Outcome) -> None:
    for accepted, truth in outcome.said[shim]:
        exported = outcome.exported.of(truth.pid)
        times = 2 if "SHIM_TWICE" in shim.variables else 1
        assert truth.launches.total() == times * accepted
        comparison.assert_totals(exported, truth)
        assert exported.total(comparison.USAGE) == 0


@pytest.mark.parametrize("shim", PRELOADED, ids=str)
def test_what_a_preloaded_shim_hands_on_is_counted_once(shim: Shim, outcome: Outcome) -> None:
    assert_counted_once(shim, outcome)


@pytest.mark.parametrize("shim", IN_PLACE, ids=str)
def test_what_a_shim_in_the_drivers_place_hands_on_is_counted_once(shim: Shim, outcome: Outcome) -> None:
    assert_counted_once(shim, outcome)
