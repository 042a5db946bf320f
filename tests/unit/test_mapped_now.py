"""A process that does not let its mappings be read costs its own user's processes some time, and no other's."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from otel_gpu.discovery import mapped_now
from otel_gpu.discovery.mapped_now import MappedNow
from otel_gpu.sandbox import mappings
from otel_gpu.sandbox.confinement import Limits
from otel_gpu.sandbox.files import MappedFile
from otel_gpu.sandbox.parsers import Parsers
from tests.waiting import until

_STALLED = Path(__file__).parent.parent / "programs" / "stalled.py"
_HELD, _OTHER = 54_321, 54_322
"""Users."""


@contextmanager
def _held(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds the lock of its mappings until its input ends."""
    directory.mkdir()
    command = [sys.executable, _STALLED, "mappings", str(directory), str(_HELD)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            if not process.stdout.readline():
                pytest.skip(f"not on this machine: {process.stderr.read().splitlines()[-1]}")
            yield process
        finally:
            # Only this lets the process end.
            process.stdin.close()
            process.kill()


@contextmanager
def _sleeping(user: int) -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"], user=user, cwd="/") as process:
        try:
            yield process.pid
        finally:
            process.kill()


def _answers(pid: int) -> bool:
    """Say whether somebody can read what a process has mapped: not this process, which could not end any more."""
    with subprocess.Popen(["cat", f"/proc/{pid}/maps"], stdout=subprocess.DEVNULL) as reader:
        try:
            return reader.wait(0.5) == 0
        except subprocess.TimeoutExpired:
            reader.kill()
            return False


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.timeout(60)
def test_processes_that_do_not_answer_hold_up_none_of_another_user_and_are_read_once_they_do(
    parsers: Parsers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mapped_now, "_AGAIN_S", 0.5)
    monkeypatch.setattr(mappings, "_READING", Limits(answer_s=0.5))
    caplog.set_level(logging.WARNING, mapped_now.__name__)
    read: list[int] = []

    def take(pid: int, files: list[MappedFile]) -> None:
        assert all(file.pid == pid for file in files)
        read.append(pid)

    with ExitStack() as running:
        held = [running.enter_context(_held(tmp_path / str(number))) for number in range(4)]
        pids = [process.pid for process in held]
        same, other = (running.enter_context(_sleeping(user)) for user in (_HELD, _OTHER))
        until(lambda: not any(_answers(pid) for pid in pids), "all hold the lock")
        now = MappedNow(parsers, lambda: take)
        running.callback(now.close, 5.0)

        now.read([os.getpid(), *pids, same, other])
        assert read[:1] == [os.getpid()]
        until(lambda: other in read, "another user's process is read")
        assert same not in read
        until(lambda: same in read, "the same user's process is read")
        assert not set(pids) & set(read)
        (line,) = caplog.messages
        assert (
            f"what process {pids[0]} has mapped cannot be read (/proc/{pids[0]}/maps): a child did not answer in time;"
            in line
        )
        assert f"user, {_HELD}," in line

        for process in held:
            assert process.stdin is not None
            process.stdin.close()
        until(lambda: now.read_again() or set(pids) <= set(read), "those that did not answer are read")
        assert len(read) == len(set(read)) == len(pids) + 3
        assert len(caplog.messages) == 1
        assert now.settle(5.0)
        assert not now._left


@pytest.mark.root
@pytest.mark.alone
def test_a_process_that_is_gone_is_not_read_again(
    parsers: Parsers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_now, "_AGAIN_S", 0.0)
    monkeypatch.setattr(mappings, "_READING", Limits(answer_s=0.5))
    with _held(tmp_path / "held") as process:
        until(lambda: not _answers(process.pid), "it holds the lock")
        now = MappedNow(parsers, lambda: lambda pid, _files: pytest.fail(f"{pid} was read"))
        assert now.of(process.pid) == []
        assert set(now._left) == {_HELD}
    now.read_again()
    assert now.settle(5.0)
    assert not now._left
    now.close(5.0)
