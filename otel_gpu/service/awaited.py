"""The processes for which a run with chosen ones goes on, of these and of all that has come of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from ..discovery.followed import FollowedProcesses
from ..discovery.procfs import is_alive

_IDLE_S = 30.0
"""How long processes are waited for that use no GPU, once those have ended that were named: they may come to use one."""


class AwaitedProcesses:
    """The chosen processes that run, and their descendants where these are followed. Used by one thread at a time."""

    def __init__(self, pids: Collection[int], uses_gpu: Callable[[int], bool]) -> None:
        """`uses_gpu` reports of a descendant whether it is waited for without an end."""
        self._pids = pids
        self._uses_gpu = uses_gpu
        self._idle_since: float | None = None

    def find(self, followed: FollowedProcesses | None) -> list[int]:
        """Return those that are waited for now: others than the named ones not for long if none uses a GPU."""
        if followed is None:
            return [pid for pid in self._pids if is_alive(pid)]
        running = followed.running()
        if any(pid in self._pids or self._uses_gpu(pid) for pid in running):
            self._idle_since = None
            return running
        now = time.monotonic()
        self._idle_since = now if self._idle_since is None else self._idle_since
        return running if now - self._idle_since < _IDLE_S else []
