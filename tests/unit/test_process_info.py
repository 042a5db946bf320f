"""What a process was started with is read beside everything else, and who keeps its readers waiting keeps nobody else."""

from __future__ import annotations

import logging
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from otel_gpu.discovery.identification import Identification
from otel_gpu.discovery.process_info import ProcessInfo, ProcessInfoReader, Unread, kernel_info
from otel_gpu.discovery.processes import ProcessTable
from otel_gpu.sandbox.parsers import Parsers
from otel_gpu.signals.metrics import Resource, attributes

DEADLINE_S = 60.0
PROGRAMS = Path(__file__).parent.parent / "programs"
WAITS = "import sys; print(flush=True); sys.stdin.read()"
CANNOT = 77

Read = Callable[[int], ProcessInfo]


@pytest.fixture(scope="module")
def parsers() -> Iterator[Parsers]:
    with Parsers(modules=("otel_gpu.discovery.process_info_work",)) as running:
        yield running


@pytest.fixture
def read(parsers: Parsers) -> Iterator[Read]:
    reader = ProcessInfoReader(parsers)

    def read(pid: int) -> ProcessInfo:
        found: queue.Queue[ProcessInfo] = queue.Queue()
        reader.complete(kernel_info(pid), found.put)
        return found.get(timeout=DEADLINE_S)

    yield read
    reader.close()


@contextmanager
def running(*command: str | Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that says a line when it is there, and ends with its input."""
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        if b"cannot" in (line := process.stdout.readline()):
            process.communicate()
            pytest.skip(f"this kernel does not let a program do that: {line.decode()}")
        yield process
        process.communicate()


def test_arguments_and_the_variables_that_are_wanted_are_read(read: Read) -> None:
    variables = {
        "OTEL_SERVICE_NAME": "a=b",
        "CUDA_VISIBLE_DEVICES": "",
        "PASSWORD": "secret",
        "xOTEL_SERVICE_NAME": "x",
    }
    with running(sys.executable, "-Sc", WAITS, "two words", "", **variables) as process:
        info = read(process.pid)

    assert info.arguments == (sys.executable, "-Sc", WAITS, "two words", "")
    assert dict(info.variables) == {"OTEL_SERVICE_NAME": "a=b", "CUDA_VISIBLE_DEVICES": ""}
    assert (info.parent_pid, info.unread) == (os.getpid(), None)


def test_what_is_read_is_bounded(read: Read) -> None:
    long = {"OTEL_RESOURCE_ATTRIBUTES": "x" * 100_000, **{f"V{n}": "y" * 100_000 for n in range(8)}}
    with running(sys.executable, "-Sc", WAITS, *["z" * 1000] * 500, **long) as process:
        info = read(process.pid)

    assert info.arguments[:3] == (sys.executable, "-Sc", WAITS)
    assert 50 < len(info.arguments) < 70
    assert dict(info.variables) == {"OTEL_RESOURCE_ATTRIBUTES": "x" * 100_000}
    assert info.unread is None


def test_a_process_that_has_ended_or_become_another_says_nothing(read: Read) -> None:
    with running(sys.executable, "-Sc", WAITS) as process:
        info = kernel_info(process.pid)

    assert info.comm
    assert read(process.pid).unread is Unread.ENDED
    assert read(1 << 22) == ProcessInfo(1 << 22, unread=Unread.ENDED)


def test_memory_that_gives_nothing_is_no_empty_command_line(read: Read, tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    with running(sys.executable, PROGRAMS / "unanswered_start.py", script, OTEL_SERVICE_NAME="hidden") as process:
        info = read(process.pid)

    assert info.executable == os.path.realpath(sys.executable)
    assert (info.arguments, info.variables, info.unread) == ((), (), Unread.NO_ANSWER)


@pytest.mark.root
def test_a_process_whose_memory_nobody_can_look_at_keeps_nobody_waiting(
    parsers: Parsers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    subprocess.run([compiler, "-static", "-o", tmp_path / "held", PROGRAMS / "held_memory.c"], check=True)
    (tmp_path / "mounted").mkdir()
    table = ProcessTable({}, parsers)
    with (
        running(tmp_path / "held", tmp_path / "mounted", OTEL_SERVICE_NAME="hidden") as held,
        running(sys.executable, "-Sc", WAITS, OTEL_SERVICE_NAME="seen") as other,
    ):
        held.stdin.write(b"x")
        held.stdin.flush()
        while Path(f"/proc/{held.pid}/stat").read_text().rpartition(")")[2].split()[0] != "D":
            assert held.poll() is None
        found: list[dict[str, object]] = []

        def observe() -> None:
            processes = [table.observe(held.pid), table.observe(other.pid)]
            found.extend(dict(process.resource.attributes) for process in processes)

        # In a thread that can be left behind: whoever waited for the held one would wait for good.
        observer = threading.Thread(target=observe, daemon=True)
        observer.start()
        observer.join(DEADLINE_S)

    assert [(r["service.name"], r.get("process.command")) for r in found] == [("held", None), ("seen", sys.executable)]
    assert [r["process.executable.name"] for r in found] == ["held", Path(os.path.realpath(sys.executable)).name]
    assert {reason: n for reason, n in table.identities.unread().items() if n} == {Unread.NO_ANSWER: 1}
    (said,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert said.startswith(f"process {held.pid} (held): its command line and environment cannot be read (no answer)")
    table.close()


def decided(info: ProcessInfo) -> Resource:
    return Resource(attributes({"service.name": info.comm, "command": " ".join(info.arguments)}))


def test_who_a_program_is_is_decided_once_with_all_that_is_known_by_then() -> None:
    info = ProcessInfo(7, comm="python", variables=(("CUDA_VISIBLE_DEVICES", "1"),))
    calls: list[ProcessInfo] = []
    identification = Identification(info, lambda f: (calls.append(f), decided(f))[1])
    threading.Timer(0.05, identification.supply, (replace(info, arguments=("train",)),)).start()

    known = identification.get()
    identification.supply(replace(info, arguments=("another",)))

    assert dict(known.resource.attributes)["command"] == "train"
    assert known.environment == {"CUDA_VISIBLE_DEVICES": "1"}
    assert identification.get() is known
    assert len(calls) == 1


def test_who_waits_too_long_has_to_do_with_what_the_kernel_knows() -> None:
    identification = Identification(ProcessInfo(7, comm="python"), decided, timeout_s=0.05)

    known = identification.get()
    identification.supply(ProcessInfo(7, comm="python", arguments=("late",)))

    assert dict(identification.get().resource.attributes) == {"service.name": "python", "command": ""}
    assert known.environment is None
