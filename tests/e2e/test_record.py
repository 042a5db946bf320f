"""Does the command `record` keep what it recorded, however the recording ends?"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from otel_gpu.reporters.reading import read_profiles
from otel_gpu.signals.profiles import is_truncated
from tests import cpythons
from tests.e2e import ground
from tests.e2e.processes import DEADLINE_S, Program
from tests.e2e.stack_truth import captured, launching, python_part, truths
from tests.e2e.truth import Truth

_STORM = ("--gate", "--threads", "2", "--launches", "3000")
_AT_ONCE = 500


@contextmanager
def _storms(directory: Path, count: int, *words: str) -> Iterator[list[Program]]:
    with ExitStack() as stack:
        storm = [ground.part("programs") / "launch_storm", *_STORM, *words]
        programs = [stack.enter_context(Program(storm, directory)) for _ in range(count)]
        for program in programs:
            program.ready()
        yield programs


@contextmanager
def _recording(pids: Sequence[int], duration: str, out: Path, kind: str = "launch") -> Iterator[subprocess.Popen[str]]:
    """Run `otel-gpu record`; yields it once it records."""
    command = [sys.executable, "-m", "otel_gpu", "record", "--duration", duration, "--type", kind, "-o", str(out)]
    for pid in pids:
        command += ["--pid", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as recording:
        try:
            said = []
            for line in recording.stderr:
                said.append(line)
                if line.startswith(f"recording {kind} of process"):
                    break
            else:
                raise AssertionError("".join(said))
            yield recording
        finally:
            recording.kill()


def _totals(out: Path) -> dict[object, int]:
    return {dict(p.resource.attributes)["process.pid"]: p.total for p in read_profiles(out)}


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
def test_a_recording_that_is_told_to_stop_is_written(number: signal.Signals, tmp_path: Path) -> None:
    with _storms(tmp_path, 1) as (program,), _recording([program.pid], "3600", tmp_path / "a.otlp.json") as recording:
        program.run_phase()
        recording.send_signal(number)
        assert recording.wait(DEADLINE_S) == 0, recording.stderr.read()
        truth = program.finish()

    assert _totals(tmp_path / "a.otlp.json") == {truth.pid: truth.launches.total()}


def test_a_recording_ends_with_the_last_of_its_processes(tmp_path: Path) -> None:
    with _storms(tmp_path, 2) as programs:
        pids = [p.pid for p in programs]
        with _recording(pids, "3600", tmp_path / "a.otlp.json") as recording:
            truths = []
            for program in programs:
                program.run_phase()
                truths.append(program.finish())
            assert recording.wait(DEADLINE_S) == 0, recording.stderr.read()

    assert _totals(tmp_path / "a.otlp.json") == {t.pid: t.launches.total() for t in truths}


_TOTALS = {
    "launch": lambda truth: truth.launches.total(),
    "copy": lambda truth: truth.copied.sum,
    "alloc": lambda truth: truth.allocated.total(),
}


@pytest.mark.parametrize("kind", _TOTALS)
def test_what_stacks_without_room_stood_for_is_in_the_totals(kind: str, tmp_path: Path) -> None:
    with _storms(tmp_path, 4, "--memory", "100") as programs:
        pids = [p.pid for p in programs]
        with _recording(pids, "3600", tmp_path / "a.otlp.json", kind) as recording:
            # Nobody reads the buffer until the programs have ended.
            recording.send_signal(signal.SIGSTOP)
            for program in programs:
                program.go()
            truths = [p.finish() for p in programs]
            recording.send_signal(signal.SIGCONT)
            said = recording.communicate(timeout=DEADLINE_S)[1]

    assert recording.returncode == 0, said
    assert re.search("[1-9][0-9]* more came faster than they could be read", said)
    assert _totals(tmp_path / "a.otlp.json") == {t.pid: _TOTALS[kind](t) for t in truths}


def test_processes_that_end_at_once_each_have_their_total(tmp_path: Path) -> None:
    with _storms(tmp_path, _AT_ONCE) as programs:
        pids = [p.pid for p in programs]
        with _recording(pids, "3600", tmp_path / "a.otlp.json") as recording:
            for program in programs:
                program.go()
            truths = [p.finish() for p in programs]
            assert recording.wait(DEADLINE_S) == 0, recording.stderr.read()

    assert _totals(tmp_path / "a.otlp.json") == {t.pid: t.launches.total() for t in truths}


def test_what_a_program_did_before_it_ended_has_names(tmp_path: Path) -> None:
    interpreter = next(i for i in cpythons.interpreters() if not i.missing)
    out = tmp_path / "a.otlp.json"
    with launching(interpreter, tmp_path) as program, _recording([program.pid], "3600", out) as recording:
        program.process.stdin.write("load\nlaunch\n")
        program.process.stdin.flush()
        program.event("phase")
        truth = truths(program.event("phase"))
        # What it did within the last moment may stay without the names of Python's functions.
        time.sleep(0.5)
        program.process.kill()
        assert recording.wait(DEADLINE_S) == 0, recording.stderr.read()

    stacks = captured(read_profiles(out))
    assert stacks.keys() == truth.keys()
    for kernel, stack in stacks.items():
        found = python_part(stack)
        assert found == truth[kernel].python[: len(found)]
        assert is_truncated(stack) or len(found) == len(truth[kernel].python)
        # A library that launches the moment after it was mapped may not be known yet.
        if not (kernel.startswith("late_library") and is_truncated(stack)):
            assert [f.function for f in stack[:2]] == ["cuLaunchKernel", "launch_here"]


def _record_command(tmp_path: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": ground.library_path(),
        "MOCKCUDA_TRUTH": str(tmp_path / "truth.json"),
        "MOCKCUDA_STATE": "",
    }
    command = [sys.executable, "-m", "otel_gpu", "record", *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_a_command_is_recorded_from_its_first_call_to_its_last(tmp_path: Path) -> None:
    storm = ground.part("programs") / "launch_storm"
    words = ["--type", "launch,alloc", "-o", tmp_path / "a.folded", "--", storm, "--threads", "2", "--memory", "50"]

    done = _record_command(tmp_path, *words)

    assert done.returncode == 0, done.stderr
    truth = Truth.read(tmp_path / "truth.json")
    (launches,) = read_profiles(tmp_path / "a.folded")
    (allocated,) = read_profiles(tmp_path / "a.gpu_alloc_space.folded")
    assert (launches.total, allocated.total) == (truth.launches.total(), truth.allocated.total())
    assert f"kernel launches, {truth.launches.total():,} count:" in done.stderr


@pytest.mark.parametrize(
    ("command", "status", "says"),
    [
        (("sh", "-c", "exit 7"), 1, "it has ended; see that it uses a GPU"),
        (("/nowhere/at-all",), 2, "/nowhere/at-all cannot be run: No such file or directory"),
    ],
)
def test_of_a_command_that_did_nothing_it_is_said_why(
    command: tuple[str, ...], status: int, says: str, tmp_path: Path
) -> None:
    done = _record_command(tmp_path, "-o", "-", "--", *command)

    assert (done.returncode, done.stdout) == (status, "")
    assert says in done.stderr


def test_a_command_has_the_environment_and_the_limits_that_it_would_have(
    tmp_path: Path,
) -> None:
    storm = ground.part("programs") / "launch_storm"
    said = "import os, resource; print(dict(os.environ), resource.getrlimit(resource.RLIMIT_NOFILE))"
    script = f"{sys.executable} -c '{said}' && exec {storm} >/dev/null"

    done = _record_command(tmp_path, "-o", tmp_path / "a.html", "--", "sh", "-c", script)
    without = subprocess.run(
        [sys.executable, "-c", said],
        env={**os.environ, "MOCKCUDA_STATE": ""},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.rpartition("} ")[2] == without.stdout.rpartition("} ")[2]
    assert ("OPENBLAS_NUM_THREADS" in done.stdout) == ("OPENBLAS_NUM_THREADS" in without.stdout)
