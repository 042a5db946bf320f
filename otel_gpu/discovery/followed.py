"""The processes that were named, and all that come of them. The kernel adds each child as it is made, before it does anything."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Collection, Iterator

from ..bpf.maps import BpfMap
from . import procfs
from .descendants import descendants

_log = logging.getLogger(__name__)
_LOOKS = 8
"""How often the agent looks for descendants that were made while it looked."""
_KEPT_S = 2.0
"""How long a process that has ended is kept: events of what it did may still be on their way."""


class FollowedProcesses:
    """The table of the processes that the kernel follows. Safe to use from several threads."""

    def __init__(self, targets: BpfMap) -> None:
        self._targets = targets
        self._ended: dict[int, float] = {}

    def __contains__(self, pid: int) -> bool:
        return self._targets.get(pid.to_bytes(4, "little")) is not None

    def __iter__(self) -> Iterator[int]:
        keys, _ = self._targets.read("<u4", "u1")
        return iter(sorted(keys.tolist()))

    def add_descendants(self, pids: Collection[int]) -> list[int]:
        """Follow what has come of some processes before the kernel followed these, and return it."""
        added: list[int] = []
        for _ in range(_LOOKS):
            new = [pid for pid in descendants(pids) if pid not in self]
            if not new or not all(map(self._add, new)):
                break
            added += new
        return added

    def _add(self, pid: int) -> bool:
        try:
            self._targets.put(pid.to_bytes(4, "little"), b"\1")
        except OSError as e:
            if e.errno not in (errno.E2BIG, errno.ENOMEM):
                raise
            _log.warning("%d processes are followed; the table has no room for more", self._targets.max_entries)
            return False
        return True

    def discard(self, pid: int) -> None:
        """Follow a process no more, since it has ended."""
        self._targets.delete(pid.to_bytes(4, "little"))

    def running(self) -> list[int]:
        """Return the processes that have not ended, and drop those that ended a while ago."""
        alive, ended = [], {}
        now = time.monotonic()
        for pid in self:
            if procfs.is_alive(pid):
                alive.append(pid)
            elif now - (since := self._ended.get(pid, now)) < _KEPT_S:
                ended[pid] = since
            else:
                self.discard(pid)
        self._ended = ended
        return alive
