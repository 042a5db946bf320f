"""What processes have mapped now, although some keep every reader of their mappings waiting.

The kernel lists a process's mappings only when no thread holds their lock, and a thread of the process can hold it for ever.
All processes are read together until one does not answer. The rest is then read user by user, so that processes of one
user that do not answer hold up no process of another. A process that does not answer is read again until it does or is gone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from ..runtime.fair_pool import FairPool
from ..runtime.supervision import Worker
from ..sandbox.files import MappedFile
from ..sandbox.mappings import mappings_of_each
from ..sandbox.parsers import Parsers
from . import procfs

_log = logging.getLogger(__name__)

_AT_ONCE, _MOST = 2, 8
"""Users whose processes are read at a time; the second is with those whose processes do not answer."""
_AGAIN_S = 10.0
_MAX_LOGGED = 64
"""Users; of further ones no process is logged."""

User = int | None
"""By number; None where the kernel does not say."""


Take = Callable[[int, list[MappedFile]], None]
"""(process, its executable mappings); called only if there are any."""


class MappedNow:
    """Reads what processes have mapped, and reads those again that do not answer. Safe to use from several threads."""

    def __init__(self, parsers: Parsers, begin: Callable[[], Take], *, logs: bool = True) -> None:
        """`begin` is called before processes are read, from several threads; it returns what takes in what is read."""
        self._parsers = parsers
        self._begin = begin
        self._logs = logs
        self._pool = FairPool("discovery of processes that do not answer", at_once=_AT_ONCE, most=_MOST)
        self._lock = threading.Lock()
        self._left: dict[User, dict[int, float]] = {}
        """When each process that was not read is read again, by `time.monotonic`: at once where it was not its turn."""
        self._reading: set[User] = set()
        self._logged: set[User] = set()

    @property
    def workers(self) -> list[Worker]:
        """The threads that read processes of users one of whose processes does not answer."""
        return self._pool.workers

    def of(self, pid: int) -> list[MappedFile]:
        """Return what a process has mapped executable; nothing if it does not answer, and it is read again then."""
        found: list[MappedFile] = []
        self._leave(self._read([pid], lambda _pid, files: found.extend(files)))
        return found

    def read(self, pids: Iterable[int]) -> None:
        """Read all processes but those left for later; return after the first that does not answer."""
        with self._lock:
            left = {pid for pids_of_user in self._left.values() for pid in pids_of_user}
        self._leave(self._read([pid for pid in pids if pid not in left], self._begin()))
        self.read_again()

    def read_again(self) -> None:
        """Begin to read the processes whose turn has come, without a wait."""
        now = time.monotonic()
        with self._lock:
            for user, pids in self._left.items():
                is_due = user not in self._reading and min(pids.values()) <= now
                if is_due and self._pool.submit(user, partial(self._read_user, user)):
                    self._reading.add(user)

    def settle(self, timeout_s: float) -> bool:
        """Wait until no process is left whose turn has come; False when the time is up first."""
        return self._pool.settle(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Read no further process; idempotent."""
        self._pool.close(timeout_s)

    def _read_user(self, user: User) -> None:
        """Read the processes of a user until one does not answer: those first that have not been tried."""
        now = time.monotonic()
        with self._lock:
            pids = self._left[user]
            due = sorted((pid for pid, at in pids.items() if at <= now), key=pids.__getitem__)
        unread = dict.fromkeys(due, now + _AGAIN_S)
        try:
            unread = self._read(due, self._begin())
        finally:
            with self._lock:
                for pid in due:
                    del pids[pid]
                pids |= unread
                if not pids:
                    del self._left[user]
                self._reading.discard(user)
        self.read_again()

    def _leave(self, unread: Mapping[int, float]) -> None:
        """Have processes read later, each with those of its user."""
        with self._lock:
            for pid, due in unread.items():
                self._left.setdefault(procfs.user(pid), {})[pid] = due

    def _read(self, pids: list[int], take: Take) -> dict[int, float]:
        """Return the processes that were not read, and when to read each again."""
        unread: dict[int, float] = {}
        for found in mappings_of_each(self._parsers, pids):
            if found.files:
                take(found.pid, found.files)
            elif not found.is_answered:
                unread[found.pid] = 0.0
                if found.is_tried:
                    unread[found.pid] = time.monotonic() + _AGAIN_S
                    if self._logs:
                        self._log(found.pid, found.reason)
        return unread

    def _log(self, pid: int, reason: str) -> None:
        user = procfs.user(pid)
        with self._lock:
            if user in self._logged or len(self._logged) >= _MAX_LOGGED:
                return
            self._logged.add(user)
        _log.warning(
            "what process %d has mapped cannot be read (/proc/%d/maps): %s; it is not observed until it can, which is tried "
            "every %.0f s; of its user, %s, no other such process is logged",
            pid,
            pid,
            reason,
            _AGAIN_S,
            user,
        )
