"""What are the code objects of one process called? Asked of a child that holds the process's memory, and nothing else.

The child lives as long as it is asked now and then. A process whose memory keeps the child waiting is not asked again for
a while: its frames are unreadable, and nobody else's.
"""

from __future__ import annotations

import logging
import threading
import time

from ...sandbox.files import ProcessFile
from ...sandbox.parsers import Job, Parsers, WorkError
from .code import CODE, CodeAddress, CodeRequest, PythonFrame, Unresolved, code_objects
from .process import PythonProcess

_log = logging.getLogger(__name__)
_IDLE_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 600.0
_AT_ONCE = 1_024

Resolved = PythonFrame | Unresolved


class PythonNames:
    """The code objects of one process. Safe to use from several threads."""

    def __init__(self, parsers: Parsers, pid: int) -> None:
        self._parsers = parsers
        self._pid = pid
        self._job: Job[list[Resolved]] | None = None
        self._python: PythonProcess | None = None
        self._doubt = False
        self._lock = threading.RLock()
        self._asked_at = 0.0
        self._not_before = 0.0
        self._pause_s = _FIRST_PAUSE_S

    def doubt(self) -> None:
        """Look at every code object again before it is believed: another may have got its address."""
        self._doubt = True

    def names(self, python: PythonProcess, asked: list[CodeAddress]) -> list[Resolved]:
        """Return what code objects are called and at which line they are, in the order in which they are asked for."""
        with self._lock:
            found: list[Resolved] = []
            for first in range(0, len(asked), _AT_ONCE):
                part = asked[first : first + _AT_ONCE]
                answers = self._ask(python, part)
                if len(answers) != len(part):
                    break
                found += answers
            return found + [Unresolved.UNREADABLE] * (len(asked) - len(found))

    def expect(self, python: PythonProcess) -> None:
        """Have the child ready before it is asked: what it is asked for may be gone a moment later."""
        self.names(python, [CodeAddress(0, 0, None, None)])

    def close_idle(self) -> None:
        """End the child if it has not been asked for a while."""
        if self._lock.acquire(blocking=False):
            try:
                if self._job is not None and time.monotonic() - self._asked_at > _IDLE_S:
                    self.close()
            finally:
                self._lock.release()

    def close(self) -> None:
        """End the child; idempotent."""
        job, self._job = self._job, None
        if job is not None:
            job.close()

    def _ask(self, python: PythonProcess, asked: list[CodeAddress]) -> list[Resolved]:
        self._asked_at = time.monotonic()
        if self._asked_at < self._not_before:
            return []
        question = CodeRequest(self._doubt, asked)
        for is_new in (self._job is None or self._python is not python, True):
            if is_new:
                self.close()
            try:
                if self._job is None:
                    memory = ProcessFile(self._pid, "mem")
                    self._job = self._parsers.begin(code_objects, [memory], python, limits=CODE)
                    self._python = python
                answers = self._job.ask(question)
            except WorkError as e:
                _log.debug("the Python code of process %d: %s", self._pid, e)
                self.close()
                if is_new:
                    break
            else:
                self._doubt = False
                self._pause_s = _FIRST_PAUSE_S
                return answers
        self._not_before = time.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        return []
