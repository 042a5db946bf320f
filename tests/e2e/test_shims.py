"""Is a call counted once where something between a program and the driver hands it on, and not at all where that refuses it?"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e import comparison, ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import Agent, Program

LAUNCHES = 1_400


def built(directory: Path, source: str, out: str, flags: Sequence[str]) -> Path:
    made = directory / out
    made.parent.mkdir(exist_ok=True)
    subprocess.run(["gcc", "-O1", ground.PROGRAMS / source, "-o", made, *flags], check=True)
    return made


def run(directory: Path, shim: Path, variables: dict[str, str], *, is_preloaded: bool) -> None:
    """Run a program through a shim twice, once from before the agent comes, and compare."""
    driver = ground.own_driver(directory / "driver")
    linked = built(directory, "linked.c", "linked", [f"-L{driver}", "-l:libcuda.so.1"])
    found = driver if is_preloaded else shim.parent
    environment = {"LD_LIBRARY_PATH": str(found), **variables}
    if is_preloaded:
        environment["LD_PRELOAD"] = str(shim)
    out = directory / "out"
    with Program([linked, str(LAUNCHES)], directory, environment) as early:
        early.ready()
        with Agent(["--output", f"file:{out}"], directory) as agent:
            agent.wait_attached(driver=driver)
            with Program([linked, str(LAUNCHES)], directory, environment) as late:
                late.ready()
                said = [early.run_phase(), late.run_phase()]
                truths = [early.finish(), late.finish()]
            agent.stop()
    everything = read_metrics(out)
    for phase, truth in zip(said, truths, strict=True):
        exported = everything.of(truth.pid)
        times = 2 if "SHIM_TWICE" in variables else 1
        assert truth.launches.total() == times * int(str(phase["accepted"]))
        comparison.assert_totals(exported, truth)
        assert exported.total(comparison.USAGE) == 0


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SHIM_PROCS": "1"},
        {"SHIM_THREAD": "1"},
        {"SHIM_REFUSES": "3"},
        {"SHIM_TWICE": "1"},
    ],
    ids=["by-name", "by-cuGetProcAddress", "by-another-thread", "some-refused", "twice"],
)
def test_what_a_preloaded_shim_hands_on_is_counted_once(tmp_path: Path, variables: dict[str, str]) -> None:
    shim = built(tmp_path, "shim.c", "libvgpu.so", ["-shared", "-fPIC", "-ldl"])

    run(tmp_path, shim, variables, is_preloaded=True)


@pytest.mark.parametrize("variables", [{}, {"SHIM_REFUSES": "3"}], ids=["all", "some-refused"])
def test_what_a_shim_in_the_drivers_place_hands_on_is_counted_once(tmp_path: Path, variables: dict[str, str]) -> None:
    real = os.fspath(tmp_path / "driver" / "libcuda.so.1")
    # As the linker finds what programs are linked against; it opens the driver by its path.
    flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", f'-DREAL="{real}"', "-ldl"]
    shim = built(tmp_path, "shim.c", "shim/libcuda.so.1", flags)

    run(tmp_path, shim, variables, is_preloaded=False)
