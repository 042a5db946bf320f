"""Names the code that one process made at run time, by the map that its runtime writes for perf.

The map is looked for where perf looks, by the process's number in its own namespace and below its own root, and opened with
that process's own rights. A process without one is not asked again for a while.
"""

from __future__ import annotations

import logging
import threading
import time

from ...discovery import procfs
from ...errors import ProcessGoneError
from ...sandbox.files import NamedFile
from ...sandbox.parsers import Job, Parsers, WorkError
from .perf_map import PERF_MAP, MadeAddress, perf_map

_log = logging.getLogger(__name__)
_IDLE_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 60.0
_MAX_STATUS = 1 << 16


class MadeNames:
    """The functions that the runtimes of one process made. Safe to use from several threads."""

    def __init__(self, parsers: Parsers, pid: int) -> None:
        self._parsers = parsers
        self._pid = pid
        self._job: Job[list[str]] | None = None
        self._lock = threading.Lock()
        self._asked_at = 0.0
        self._not_before = 0.0
        self._pause_s = _FIRST_PAUSE_S

    def names(self, asked: list[MadeAddress]) -> list[str]:
        """Return what is at addresses, in the order in which they are asked for; an empty name where that is not known."""
        with self._lock:
            self._asked_at = time.monotonic()
            if self._asked_at < self._not_before:
                return [""] * len(asked)
            try:
                if self._job is None:
                    path = f"/tmp/perf-{_own_number(self._pid)}.map".encode()  # noqa: S108 - where runtimes write it
                    self._job = self._parsers.begin(perf_map, [NamedFile(self._pid, path)], None, limits=PERF_MAP)
                    self._job.open()
                    if self._job.opened[0].reason:
                        raise WorkError(self._job.opened[0].reason)
                names = self._job.ask(asked)
            except (WorkError, ProcessGoneError) as e:
                _log.debug("the functions that process %d made: %s", self._pid, e)
                self._close()
                self._not_before = self._asked_at + self._pause_s
                self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
                names = []
            else:
                self._pause_s = _FIRST_PAUSE_S
            return names if len(names) == len(asked) else [""] * len(asked)

    def close_idle(self) -> None:
        """End the child if it has not been asked for a while."""
        if self._lock.acquire(blocking=False):
            try:
                if self._job is not None and time.monotonic() - self._asked_at > _IDLE_S:
                    self._close()
            finally:
                self._lock.release()

    def close(self) -> None:
        """End the child; idempotent."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            job.close()


def _own_number(pid: int) -> int:
    """Return a process's number in its own namespace."""
    for line in procfs.read(pid, "status", _MAX_STATUS).splitlines():
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return pid
