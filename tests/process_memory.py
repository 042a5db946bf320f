"""The memory of a process, as the children of the agent have it, for tests that look into it themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from otel_gpu.sandbox.memory import MemoryFiles, ProcessMemory
from otel_gpu.sandbox.work import OpenFile


@contextmanager
def memory_of(pid: int) -> Iterator[ProcessMemory]:
    with memory_files(pid) as files:
        yield files.memory


@contextmanager
def memory_files(pid: int) -> Iterator[MemoryFiles]:
    with ExitStack() as stack:
        found = []
        for file in MemoryFiles.of(pid):
            try:
                descriptor = os.open(file.shown, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as e:
                found.append(OpenFile(-1, None, 0, file.shown, str(e), type(e).__name__))
            else:
                stack.callback(os.close, descriptor)
                found.append(OpenFile(descriptor, None, 0, file.shown))
        yield MemoryFiles.opened(found)
