"""One driver that programs reach by different mounts counts each call once."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.e2e import ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import Agent, Program

LAUNCHES = 40


@contextmanager
def mounted(*arguments: str | Path, at: Path) -> Iterator[Path]:
    """Mount a file system for a while."""
    at.mkdir()
    done = subprocess.run(["mount", *map(str, arguments), str(at)], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this machine mounts no such file system: {done.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def overlay(lower: Path, at: Path, *, upper: Path, options: str = "") -> ExitStack:
    """Mount an overlay of a layer, with its upper layer below another directory."""
    stack = ExitStack()
    for name in ("upper", "work"):
        (upper / f"{at.name}-{name}").mkdir(parents=True)
    said = f"lowerdir={lower},upperdir={upper / f'{at.name}-upper'},workdir={upper / f'{at.name}-work'}{options}"
    stack.enter_context(mounted("-t", "overlay", "-o", said, "overlay", at=at))
    return stack


def test_a_driver_behind_overlays_and_binds_is_one(tmp_path: Path) -> None:
    layer = ground.own_driver(tmp_path / "layer")
    with ExitStack() as stack:
        stack.enter_context(overlay(layer, tmp_path / "first", upper=tmp_path / "of-first"))
        stack.enter_context(overlay(layer, tmp_path / "second", upper=tmp_path / "of-second"))
        memory = stack.enter_context(mounted("-t", "tmpfs", "tmpfs", at=tmp_path / "memory"))
        stack.enter_context(overlay(layer, tmp_path / "two-disks", upper=memory, options=",xino=on"))
        stack.enter_context(mounted("--bind", layer, at=tmp_path / "bind"))
        places = [tmp_path / name for name in ("layer", "first", "second", "two-disks", "bind")]
        programs = [stack.enter_context(_program(place, tmp_path)) for place in places]
        for program in programs:
            program.ready()
        pids = [str(program.pid) for program in programs]
        with Agent(["--pid", *pids, "--output", f"file:{tmp_path / 'out'}"], tmp_path) as agent:
            agent.wait_watching()
            for program in programs:
                program.run_phase()
            truths = [program.finish() for program in programs]
            agent.stop()

    exported = read_metrics(tmp_path / "out")
    counted = [exported.of(truth.pid).total("gpu.cuda.kernel.launch.calls") for truth in truths]
    assert counted == [truth.launches.total() for truth in truths] == [LAUNCHES] * len(places)
    assert len(re.findall(r"attached \d+ probes to .*libcuda", agent.error_text)) == 1


def _program(driver: Path, directory: Path) -> Program:
    command = [ground.part("programs") / "launch_storm", "--gate", "--launches", str(LAUNCHES), "--phases", "1"]
    return Program(command, directory, {"LD_LIBRARY_PATH": f"{driver}:{ground.library_path()}"})
