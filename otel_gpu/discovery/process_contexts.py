"""What do processes publish of themselves, before it is needed to know who they are? Looked for again and again until then.

A process publishes once its SDK is set up, which nothing tells of.
"""

from __future__ import annotations

import logging
import threading
import time

from ..runtime.fair_pool import FairPool
from ..runtime.supervision import Health, Worker
from ..sandbox.memory import MemoryFiles
from ..sandbox.parsers import Parsers, WorkError
from ..signals.structs import Record
from .identification import Identification
from .process_context_work import READING_CONTEXT, read_process_context
from .process_info import start_of, user_of

_log = logging.getLogger(__name__)

_STEP_S = 0.25
_FIRST_AGAIN_S, _LAST_AGAIN_S = 0.25, 4.0
_AT_ONCE, _OF_ONE = 4, 2
"""Looks at once, and at one user's processes: who keeps us waiting leaves room for others."""
_MOST = 4096
"""Processes that are followed; of more nothing is read."""
_END_S = 1.0


class _Followed(Record, eq=False):
    """A process that is not known yet."""

    pid: int
    start: tuple[int, int]
    identification: Identification
    due: float = 0.0
    wait_s: float = _FIRST_AGAIN_S
    is_looked_at: bool = False
    is_done: bool = False


class ProcessContexts:
    """Looks for process contexts. Safe to use from several threads."""

    def __init__(self, parsers: Parsers) -> None:
        self._parsers = parsers
        self._lock = threading.Lock()
        self._followed: list[_Followed] = []
        self._pool = FairPool("process contexts", at_once=_AT_ONCE, most=_AT_ONCE, of_one=_OF_ONE)
        self._worker: Worker | None = None

    def follow(self, pid: int, identification: Identification) -> None:
        """Look at a process until who it is has been asked for."""
        if (start := start_of(pid)) is None:
            return
        with self._lock:
            if len(self._followed) < _MOST:
                self._followed.append(_Followed(pid, start, identification))
            if self._worker is None:
                self._worker = Worker("process contexts due", self._step)
                self._worker.start()
        self._worker.wake()

    def health(self) -> list[Health]:
        """Say how the threads are that look."""
        workers = [*self._pool.workers, *([self._worker] if self._worker is not None else [])]
        return [worker.health() for worker in workers]

    def close(self) -> None:
        """Look at nothing any more; idempotent."""
        if self._worker is not None:
            self._worker.stop(_END_S)
        self._pool.close(_END_S)

    def _step(self) -> float:
        now = time.monotonic()
        with self._lock:
            self._followed = [f for f in self._followed if not f.is_done and not f.identification.is_known]
            due = [f for f in self._followed if not f.is_looked_at and f.due <= now]
            for one in due:
                one.is_looked_at = True
            rest = bool(self._followed)
        for one in due:
            if not self._pool.submit(user_of(one.pid), lambda one=one: self._look(one)):  # type: ignore[misc]
                one.is_looked_at = False
        return _STEP_S if rest else 60.0

    def _look(self, one: _Followed) -> None:
        try:
            # Of who has ended nothing is read, nor looked for again.
            one.is_done = start_of(one.pid) != one.start
            if one.is_done:
                return
            files = MemoryFiles.of(one.pid)
            found = next(iter(self._parsers.run(read_process_context, files, None, limits=READING_CONTEXT)), None)
            one.is_done = start_of(one.pid) != one.start
            if found is not None and found.is_published and not one.is_done:
                one.identification.supply_published(tuple(found.attributes))
                one.is_done = True
        except WorkError as e:
            _log.debug("process %d: what it publishes of itself is not read: %s", one.pid, e)
        finally:
            one.due = time.monotonic() + one.wait_s
            one.wait_s = min(2 * one.wait_s, _LAST_AGAIN_S)
            one.is_looked_at = False
