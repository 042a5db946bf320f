"""What /proc says of real processes, and what it cannot say any more."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gpu.discovery import procfs
from otel_gpu.errors import ProcessGoneError

NOBODY = 1 << 22


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-Sc", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(command, env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.communicate()


def test_a_process_is_told_by_its_start_and_its_parent(child: subprocess.Popen[bytes]) -> None:
    status = procfs.stat(child.pid)

    assert status.parent == os.getpid()
    assert status.start_ticks >= procfs.stat(os.getpid()).start_ticks
    assert status.comm == Path(sys.executable).name[:15]


def test_a_program_is_known_by_its_path(child: subprocess.Popen[bytes]) -> None:
    assert procfs.executable(child.pid) == os.path.realpath(sys.executable)


def test_a_name_with_brackets_and_blanks_is_one_name() -> None:
    libc = ctypes.CDLL(None)
    before = ctypes.create_string_buffer(16)
    libc.prctl(16, before)
    libc.prctl(15, b"a) R 1 (b c")
    try:
        status = procfs.stat(os.getpid())
    finally:
        libc.prctl(15, before)

    assert (status.comm, status.parent) == ("a) R 1 (b c", os.getppid())


def test_this_program_is_among_the_processes() -> None:
    assert os.getpid() in set(procfs.pids())


def test_a_process_is_alive_until_its_last_thread_ends(child: subprocess.Popen[bytes]) -> None:
    assert procfs.is_alive(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    # A zombie: its parent has not asked how it ended.
    assert not procfs.is_alive(child.pid)
    assert procfs.executable(child.pid) is None


def test_a_program_whose_main_thread_has_ended_is_alive() -> None:
    source = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=lambda: (print(flush=True), time.sleep(60))).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    with subprocess.Popen([sys.executable, "-Sc", source], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        alive = procfs.is_alive(process.pid)
        process.kill()
    assert alive


def test_a_process_that_is_gone_is_an_error_that_says_so() -> None:
    with pytest.raises(ProcessGoneError, match=f"process {NOBODY} is gone"):
        procfs.stat(NOBODY)
    assert not procfs.is_alive(NOBODY)
    assert procfs.executable(NOBODY) is None


def test_reads_are_bounded() -> None:
    assert len(procfs.read(os.getpid(), "maps", 100)) == 100


def test_who_cannot_look_does_not_take_others_for_dead() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        assert procfs.is_alive(os.getpid())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
