"""What had a program mapped that was there before its probes? It may have ended when its kernels are to be named."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from ..sandbox.files import MappedFile
from .program_id import ProgramId

MAX_FILES, MAX_OF_ONE = 65_536, 4_096
"""Of all programs and of one; vLLM maps 700. Of a program that has more none are kept."""


class MappedBefore:
    """Mapped files by program, of one program a process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_pid: OrderedDict[int, tuple[ProgramId, Sequence[MappedFile]]] = OrderedDict()
        self._files = 0

    def note(self, program: ProgramId, files: Sequence[MappedFile]) -> None:
        """Keep what a program has mapped, in the place of what was noted longest ago where that is too much."""
        self.forget(program.pid)
        if len(files) > MAX_OF_ONE:
            return
        with self._lock:
            self._by_pid[program.pid] = program, files
            self._files += len(files)
            while self._files > MAX_FILES:
                _, (_, others) = self._by_pid.popitem(last=False)
                self._files -= len(others)

    def of(self, program: ProgramId) -> Sequence[MappedFile]:
        """Return what a program had mapped; nothing where that was not noted."""
        with self._lock:
            noted, files = self._by_pid.get(program[0], (None, ()))
        return files if noted == program else ()

    def forget(self, pid: int) -> None:
        """Drop what was noted of a process."""
        with self._lock:
            _, files = self._by_pid.pop(pid, (None, ()))
            self._files -= len(files)
