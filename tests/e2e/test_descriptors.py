"""Few files may be open: the start says so in one line, and to run out of them later costs nothing that was counted."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from otel_gpu.bpf.placed import placed_programs
from otel_gpu.runtime.shortage import COUNTING, PROFILING
from tests.e2e import ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import DEADLINE_S, Agent, Program

_STORM = ("--gate", "--threads", "2", "--launches", "1000", "--phases", "2")
_LIMIT = 512
_CALLS = "gpu.cuda.kernel.launch.calls"
_ROOT = Path(__file__).parent.parent.parent


def _limited(limit: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["prlimit", f"--nofile={limit}:{limit}", sys.executable, "-m", "otel_gpu", "run", *arguments]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


@pytest.mark.parametrize("limit, more", [(24, ()), (128, ()), (128, ("--profiles",))])
def test_too_few_descriptors_are_one_line_at_the_start(limit: int, more: tuple[str, ...], tmp_path: Path) -> None:
    done = _limited(limit, "--duration", "1", "--output", f"file:{tmp_path / 'out'}", *more)

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"of {limit} in all" in done.stderr
    assert "ulimit -n" in done.stderr


@contextmanager
def _no_descriptors(pid: int) -> Iterator[None]:
    """Let a process open nothing more."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def test_who_has_enough_by_the_hard_limit_takes_them(tmp_path: Path) -> None:
    enough = 4 * (COUNTING + PROFILING)
    storm = [ground.part("programs") / "launch_storm", *_STORM]
    with Program(storm, tmp_path) as program:
        program.ready()
        arguments = ["--pid", str(program.pid), "--profiles", "--output", f"file:{tmp_path / 'out'}"]
        with Agent(arguments, tmp_path, within=["prlimit", "--nofile=128:"]) as agent:
            agent.wait_attached()
            soft, hard = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
            program.run_phase()
            program.ready()
            program.go()
            truth = program.finish()
            assert agent.wait() == 0, agent.error_text

    assert soft >= min(hard, enough)
    assert read_metrics(tmp_path / "out").of(truth.pid).total(_CALLS) == truth.launches.total() == 4000


def test_what_was_mapped_while_nothing_could_be_opened_is_probed_when_it_can(tmp_path: Path) -> None:
    own = ground.own_driver(tmp_path / "own")
    storm = [ground.part("programs") / "launch_storm", *_STORM]
    elsewhere = {"LD_LIBRARY_PATH": f"{own}:{ground.library_path()}"}
    with Program(storm, tmp_path) as first, Agent(["--output", f"file:{tmp_path / 'out'}"], tmp_path) as agent:
        agent.wait_attached()
        first.ready()
        with Program(storm, tmp_path, elsewhere) as second:
            with _no_descriptors(agent.pid):
                second.ready()
                first.run_phase()
                first.ready()
                # Long enough for discovery to have looked, and to have tried again.
                time.sleep(5)
            agent.wait_for(rf"attached \d+ probes to {own}")
            for program in (first, second):
                program.run_phase()
            second.ready()
            second.run_phase()
            truths = [program.finish() for program in (first, second)]
        agent.stop()

    metrics = read_metrics(tmp_path / "out")
    for truth in truths:
        assert metrics.of(truth.pid).total(_CALLS) == truth.launches.total() == 4000


def test_libraries_that_nobody_uses_any_more_make_room_for_others_and_leave_their_file_system(tmp_path: Path) -> None:
    """As containers come and go, each with a driver of its own: more of them than there are descriptors for at once."""
    place, number = tmp_path / "place", 24
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "otel-gpu-test", place], check=True)
    storm = [ground.part("programs") / "launch_storm", *_STORM]
    try:
        with Agent(["--output", f"file:{tmp_path / 'out'}"], tmp_path) as agent, ExitStack() as running:
            agent.wait_watching()
            _, hard = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (_LIMIT, hard))
            programs = [
                running.enter_context(Program(storm, tmp_path, {"LD_LIBRARY_PATH": f"{own}:{ground.library_path()}"}))
                for own in _copies(place, number)
            ]
            agent.wait_for("no probes on .* yet: they take .* descriptors")
            for program in programs:
                program.ready()
            # Those that end make room for the others, in whatever order they came.
            for program in programs[: number - 4]:
                program.run_phase()
                program.go()
                program.finish()
            last = programs[number - 4 :]
            for program in last:
                agent.wait_for(rf"attached \d+ probes to {_own(place, programs.index(program))}/")
                program.run_phase()
                program.ready()
                program.run_phase()
            truths = [program.finish() for program in last]
            _wait_released(place, agent)
            _unmount(place)
            agent.stop()
    finally:
        subprocess.run(["umount", "-l", place], check=False, capture_output=True)

    metrics = read_metrics(tmp_path / "out")
    for truth in truths:
        assert metrics.of(truth.pid).total(_CALLS) == truth.launches.total() == 4000


def _own(place: Path, number: int) -> Path:
    return place / f"own-{number}"


def _copies(place: Path, number: int) -> Iterator[Path]:
    for n in range(number):
        yield ground.own_driver(_own(place, n))


def _wait_released(place: Path, agent: Agent) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while left := set(re.findall(rf"attached .* to ({place}/\S+)", agent.error_text)) - set(
        re.findall(rf"took .* out of ({place}/\S+):", agent.error_text)
    ):
        assert time.monotonic() < deadline, f"still probed: {left}"
        time.sleep(0.2)


def _unmount(place: Path) -> None:
    """Take a file system away that is not in use; it may be for as long as probes are taken out."""
    deadline = time.monotonic() + DEADLINE_S
    while subprocess.run(["umount", place], check=False, capture_output=True).returncode:
        if time.monotonic() > deadline:
            others = {p.path for p in placed_programs() if p.path.startswith(str(place))}
            assert others, f"{place} is still in use"
            pytest.skip("another agent of this host keeps its probes there")
        time.sleep(0.2)
