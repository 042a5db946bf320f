"""Does the command `record` keep what it recorded, however the recording ends?"""

from __future__ import annotations

import json
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

from otel_gpu.exporters.recordings.reading import read_profiles
from otel_gpu.signals.profiles import is_truncated
from tests import cpythons
from tests.e2e import ground
from tests.e2e.processes import DEADLINE_S, Program
from tests.e2e.stack_truth import captured, launching, python_part, truths
from tests.e2e.truth import Truth

_STORM = ("--gate", "--threads", "2", "--launches", "3000")
_AT_ONCE = 200
"""Processes, of which two fill the buffer of stacks where it is not read in time; each costs a tenth of a second of processor time."""


@contextmanager
def _storms(directory: Path, count: int, *words: str) -> Iterator[list[Program]]:
    with ExitStack() as stack:
        storm = [ground.part("programs") / "launch_storm", *_STORM, *words]
        programs = [stack.enter_context(Program(storm, directory)) for _ in range(count)]
        for program in programs:
            program.ready()
        yield programs


@contextmanager
def _recording(
    pids: Sequence[int],
    duration: str,
    out: Path,
    kind: str = "launch",
    words: Sequence[str] = (),
    command: Sequence[str] = ("-m", "otel_gpu"),
) -> Iterator[subprocess.Popen[str]]:
    """Run `otel-gpu record`; yields it once it records."""
    command = [
        sys.executable,
        *command,
        "record",
        "--duration",
        duration,
        "--type",
        kind,
        "-o",
        str(out),
        *words,
    ]
    for pid in pids:
        command += ["--pid", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as recording:
        try:
            said = []
            for line in recording.stderr:
                said.append(line)
                if line.startswith(f"recording {kind.replace(',', ', ')} of process"):
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


def _record_command(tmp_path: Path, *words: str | Path, truth: str = "truth.json") -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": ground.library_path(),
        "MOCKCUDA_TRUTH": str(tmp_path / truth),
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


def test_all_that_come_of_a_command_are_recorded_each_for_itself(tmp_path: Path) -> None:
    storm = ground.part("programs") / "launch_storm"
    family = Path(__file__).parents[1] / "programs" / "family.py"
    words = ["--type", "launch,alloc,copy", "-o", tmp_path / "a.otlp.json", "--", sys.executable, family, storm]

    done = _record_command(tmp_path, *words, truth="truth-%p.json")

    assert done.returncode == 0, done.stderr
    truths = [Truth.read(path) for path in tmp_path.glob("truth-*.json")]
    truths = {t.pid: t for t in truths if t.launches}
    assert len(truths) == 8
    profiles = read_profiles(tmp_path / "a.otlp.json")
    for name, total in (("gpu_launches", _TOTALS["launch"]), ("gpu_alloc_space", _TOTALS["alloc"])):
        found = {dict(p.resource.attributes)["process.pid"]: p.total for p in profiles if p.type.name == name}
        assert found == {pid: total(t) for pid, t in truths.items() if total(t)}, name
    assert "the command has ended; recording goes on" in done.stderr


_WAITS_FOR_A_MOMENT = """
from otel_gpu.cli import main
from otel_gpu.cli.exit import leave
from otel_gpu.service import awaited

awaited._IDLE_S = 2.0
leave(main())
"""
"""The command, but for how long it waits for processes that use no GPU: tests/unit/test_awaited.py has the time of the product."""


@pytest.mark.parametrize("words", [[], ["--no-children"]], ids=["usual", "without"])
def test_descendants_of_a_process_are_recorded_unless_they_are_left_out(words: list[str], tmp_path: Path) -> None:
    program = Path(__file__).parents[1] / "programs" / "parent.py"
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": ground.library_path(),
        "MOCKCUDA_TRUTH": str(tmp_path / "truth-%p.json"),
        "MOCKCUDA_STATE": "",
    }
    command = [sys.executable, program, ground.part("programs") / "launch_storm"]
    out = tmp_path / "a.otlp.json"
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout.readline() == "ready\n"
        with _recording([parent.pid], "3600", out, words=words, command=("-c", _WAITS_FOR_A_MOMENT)) as recording:
            parent.stdin.write("\n")
            parent.stdin.close()
            sleeper = int(parent.stdout.readline())
            try:
                parent.wait(DEADLINE_S)
                # The one that sleeps is waited for, and not for long.
                said = recording.communicate(timeout=DEADLINE_S)[1]
            finally:
                os.kill(sleeper, signal.SIGKILL)

    if words != ["--no-children"]:
        assert recording.returncode == 0, said
        truths = [Truth.read(path) for path in tmp_path.glob("truth-*.json")]
        assert _totals(out) == {t.pid: t.launches.total() for t in truths}
        assert sorted(_totals(out).values()) == [40, 60, 80]
    else:
        assert recording.returncode == 1
        assert "leave --no-children out" in said


def test_the_peak_and_what_was_never_freed_are_exact(tmp_path: Path) -> None:
    program = Path(__file__).parents[1] / "programs" / "peak_memory.py"
    words = ["--type", "peak,leak,alloc", "-o", tmp_path / "a.otlp.json", "--", sys.executable, program]

    done = _record_command(tmp_path, *words)

    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "truth.json").read_text())["allocations"]["device"]
    profiles = {p.type.name: p for p in read_profiles(tmp_path / "a.otlp.json")}
    assert profiles["gpu_alloc_space"].total == said["bytes"]
    assert profiles["gpu_peak_space"].total == said["peak_live_bytes"]
    assert profiles["gpu_leaked_space"].total == said["live_bytes"] == said["bytes"] - said["freed_bytes"]


def test_what_a_running_process_held_at_most_since_the_recording_began_is_exact(tmp_path: Path) -> None:
    script = [sys.executable, Path(__file__).parents[1] / "programs" / "memory_script.py"]
    with Program(script, tmp_path, {"MOCKCUDA_DEVICES": "2"}) as program:
        program.ready()

        def phase(calls: list[list[object]]) -> None:
            program.process.stdin.write(json.dumps(calls) + "\n")
            program.process.stdin.flush()
            program.event("phase")

        mib = 1 << 20
        phase([[0, "allocate", "device", 8 * mib]])
        out = tmp_path / "a.otlp.json"
        with _recording([program.pid], "3600", out, "peak,leak,inuse") as recording:
            did = ("allocate", "device")
            phase(
                [
                    [0, *did, 3 * mib],
                    [1, *did, 4 * mib],
                    [0, "free", "device", 1],
                    [2, *did, mib],
                    [1, "free", "device", 0],
                ]
            )
            recording.send_signal(signal.SIGINT)
            assert recording.wait(DEADLINE_S) == 0, recording.stderr.read()

    totals = {p.type.name: p.total for p in read_profiles(out)}
    assert totals == {"gpu_peak_space": 7 * mib, "gpu_leaked_space": 5 * mib, "gpu_inuse_space": 5 * mib}


def test_processes_of_one_recording_are_told_apart_in_pprof(tmp_path: Path) -> None:
    storm = ground.part("programs") / "launch_storm"
    script = f"{storm} --launches 5 & {storm} --launches 6 & wait"

    done = _record_command(tmp_path, "-o", tmp_path / "a.pb.gz", "--", "sh", "-c", script, truth="truth-%p.json")

    assert done.returncode == 0, done.stderr
    truths = {t.pid: t.launches.total() for t in map(Truth.read, tmp_path.glob("truth-*.json"))}
    (profile,) = read_profiles(tmp_path / "a.pb.gz")
    found: dict[int, int] = {}
    for sample in profile.samples:
        pid = int(re.search(r"\(([0-9]+)\)", dict(sample.attributes)["process"])[1])
        found[pid] = found.get(pid, 0) + sample.value
    assert found == truths


def test_the_standard_output_holds_the_recording_alone(tmp_path: Path) -> None:
    storm = ground.part("programs") / "launch_storm"

    done = _record_command(tmp_path, "-o", "-", "--", storm)

    assert done.returncode == 0, done.stderr
    counts = [int(line.rpartition(" ")[2]) for line in done.stdout.splitlines()]
    assert sum(counts) == Truth.read(tmp_path / "truth.json").launches.total() > 0
    assert '{"event":"done"' in done.stderr


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


def test_a_command_is_told_what_its_recording_is_told(tmp_path: Path) -> None:
    waits = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); print(flush=True); signal.pause()"
    )
    script = f"{ground.part('programs') / 'launch_storm'} >/dev/null; exec {sys.executable} -c '{waits}'"
    words = ["-o", str(tmp_path / "a.folded"), "--", "sh", "-c", script]
    environment = {**os.environ, "LD_LIBRARY_PATH": ground.library_path(), "MOCKCUDA_STATE": ""}

    with subprocess.Popen(
        [sys.executable, "-m", "otel_gpu", "record", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as recording:
        try:
            assert recording.stdout.readline() == "\n"
            recording.send_signal(signal.SIGTERM)
            assert recording.wait(DEADLINE_S) == 9, recording.stderr.read()
        finally:
            recording.kill()


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
