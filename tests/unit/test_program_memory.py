"""A process's memory is read by a child, and one that never answers costs its own process's names only."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from otel_gpu.errors import ProcessGoneError
from otel_gpu.receivers.cuda.kernel_names import compiler_caches, kernel_libraries, program_memory
from otel_gpu.receivers.cuda.kernel_names.cache import SymbolCache
from otel_gpu.receivers.cuda.kernel_names.kernel_libraries import KernelLibraries
from otel_gpu.receivers.cuda.kernel_names.program_memory import ProgramMemory
from otel_gpu.receivers.cuda.kernel_names.stub_map import StubMap
from otel_gpu.sandbox.confinement import Limits
from otel_gpu.sandbox.files import ProcessFolders
from otel_gpu.sandbox.memory import MemoryFault
from otel_gpu.sandbox.parsers import Parsers, StuckError
from tests.stopwatch import Stopwatch

STALLED = Path(__file__).parent.parent / "programs" / "stalled.py"
SHORT = Limits(answer_s=0.3)


@contextmanager
def stalled(*arguments: object) -> Iterator[tuple[int, int]]:
    """Start a process with a page that never answers: (pid, address)."""
    command = [sys.executable, STALLED, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            if not line:
                pytest.skip(f"not on this machine: {process.stderr.read().splitlines()[-1]}")
            yield process.pid, int(line)
        finally:
            process.kill()


@pytest.fixture
def own(parsers: Parsers) -> Iterator[ProgramMemory]:
    found = ProgramMemory(parsers, os.getpid())
    yield found
    found.close()


def test_words_texts_and_mappings_are_those_of_the_process(own: ProgramMemory) -> None:
    words = (ctypes.c_uint64 * 3)(7, 8, 9)
    text = ctypes.create_string_buffer(b"a_name")
    at = ctypes.addressof(words)

    assert own.words(np.array([8, at, at + 16])).tolist() == [0, 7, 9]
    assert own.words(np.zeros(0, np.int64)).tolist() == []
    start = ctypes.addressof(text)
    assert own.texts([start, start + 2, 8], start + 7, 100) == {start: b"a_name", start + 2: b"name"}
    assert own.texts([start], start + 3, 100) == {}
    mapped = own.mapped()
    assert any(file.path.endswith(b"libc.so.6") for file in mapped)
    assert all(file.inode for file in mapped)
    assert own.mapped() == mapped
    assert own.failures == 0


def test_the_child_goes_when_it_is_not_asked_and_comes_again(
    own: ProgramMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped = own.mapped()
    own.close_idle()
    assert own.is_open
    monkeypatch.setattr(program_memory, "_IDLE_S", 0.0)
    own.close_idle()
    assert not own.is_open
    assert own.mapped() == mapped
    assert own.is_open


def test_a_process_that_ends_is_said_to_have_ended(parsers: Parsers) -> None:
    with subprocess.Popen(["sh", "-c", "echo; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        # What only begins to run has nothing mapped.
        assert process.stdout is not None
        assert process.stdout.readline()
        memory = ProgramMemory(parsers, process.pid)
        assert memory.mapped()
        process.kill()
        process.wait()
        for _ in range(2):
            with pytest.raises(ProcessGoneError):
                memory.mapped()
        memory.close()
        with pytest.raises(ProcessGoneError):
            memory.mapped()
        memory.close()


@pytest.mark.root
def test_memory_that_never_answers_is_given_up_and_nobody_else_waits(
    own: ProgramMemory, parsers: Parsers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_memory, "MEMORY", SHORT)
    with stalled("fuse", tmp_path) as (pid, address):
        memory = ProgramMemory(parsers, pid)
        assert memory.mapped()

        watch = Stopwatch()
        with pytest.raises(MemoryFault, match="cannot be read"):
            memory.words(np.array([address]))
        assert watch.seconds() < 30 * SHORT.answer_s
        assert not memory.is_open
        assert memory.failures == 1

        # Not asked again for a while, even for what would be answered.
        with pytest.raises(MemoryFault, match="not asked for a while"):
            memory.mapped()
        assert own.mapped()
        memory._not_before = 0.0
        assert memory.mapped()
        memory.close()
    _wait_until_gone(pid, parsers)


@pytest.mark.root
def test_pages_that_another_is_to_provide_hold_nobody_up(parsers: Parsers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of today do not wait for userfaultfd's handler here: nothing can be read."""
    monkeypatch.setattr(program_memory, "MEMORY", SHORT)
    with stalled("userfaultfd") as (pid, address):
        memory = ProgramMemory(parsers, pid)
        watch = Stopwatch()
        with suppress(MemoryFault):
            assert memory.words(np.array([address])).tolist() == [0]
        assert watch.seconds() < 30 * SHORT.answer_s
        memory.close()


def _wait_until_gone(pid: int, parsers: Parsers) -> None:
    """Wait until no child hangs any more: the last one of its kind that could."""
    assert parsers._server is not None
    children = Path(f"/proc/{parsers._server.pid}/task/{parsers._server.pid}/children")
    deadline = time.monotonic() + 30
    while any("mem" in _opened(child, pid) for child in children.read_text().split()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _opened(child: str, pid: int) -> set[str]:
    try:
        links = (os.readlink(link) for link in Path(f"/proc/{child}/fd").iterdir())
        return {link.rpartition("/")[2] for link in links if link.startswith(f"/proc/{pid}/")}
    except OSError:
        return set()


@pytest.mark.root
def test_a_library_that_never_answers_is_given_up(
    own: ProgramMemory, parsers: Parsers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_libraries, "OUTLINES", SHORT)
    monkeypatch.setattr(kernel_libraries, "STUBS", SHORT)
    (tmp_path / "mount").mkdir()
    with stalled("fuse", tmp_path / "mount") as (pid, _):
        memory = ProgramMemory(parsers, pid)
        mapped = memory.mapped()
        libraries = KernelLibraries(parsers, SymbolCache(tmp_path / "cache"), lambda: None)

        modules = {module.name: module for module in libraries.modules(mapped)}

        assert len(modules) == len(mapped)
        hung = modules.pop("stalled.so")
        assert hung.stubs == StubMap()
        assert all(module.id is not None for module in modules.values())
        assert libraries.read(hung) == StubMap()
        assert libraries.unread == 1
        memory.close()


@pytest.mark.root
def test_a_compilers_cache_that_never_answers_is_given_up(
    parsers: Parsers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stalled("fuse", tmp_path) as (pid, _):
        folders = ProcessFolders(pid, [os.fsencode(tmp_path)], 1 << 20)
        with pytest.raises(StuckError):
            next(parsers.run(compiler_caches.kernels_below, [folders], None, limits=SHORT))
