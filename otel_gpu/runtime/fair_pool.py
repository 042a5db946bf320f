"""Whose turn is it? The tasks of many owners, side by side, so that none of them holds up the others.

An owner is what the work is done for: a process, as a rule. The next task is one of the most urgent; among those one of
the owner that has had the least time so far. A few tasks run at once; those that take long do not count, so that the
others go on beside them.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable, Hashable

import msgspec

from ..errors import OtelGpuError
from ..signals.structs import Record
from .supervision import Worker

_MAX_WAITING = 65_536
"""Tasks of all owners together."""
_MAX_OWNERS = 4_096
"""Beyond so many, what those had is forgotten for whom nothing waits."""
_LONG_S = 2.0
_LOOK_S = 0.5
"""How often it is looked whether a task has become a long one, while others wait."""
_DEADLINE_S = 180.0
_ADDED = 0.01

Task = Callable[[], None]


class _Owner(Record):
    """Somebody for whom something waits or runs, or has run lately."""

    waiting: list[tuple[int, int, Task]] = msgspec.field(default_factory=list)
    """A heap: urgency, number, task."""
    running: int = 0
    had_s: float = 0.0


class FairPool:
    """Runs tasks in threads, which are started as they are needed. Safe to use from several threads."""

    def __init__(self, name: str, *, at_once: int = 2, most: int = 8, of_one: int = 1) -> None:
        """Run `at_once` tasks at a time, with those that take long `most`, of one owner `of_one`.

        With one of an owner at a time, its tasks of the same urgency run in the order in which they were submitted.
        """
        self._name = name
        self._at_once, self._most, self._of_one = at_once, most, of_one
        self._changed = threading.Condition()
        self._owners: dict[Hashable, _Owner] = {}
        self._ready: dict[Hashable, _Owner] = {}
        """Those of them for whom something waits."""
        self._numbers = itertools.count()
        self._began: dict[Worker, float] = {}
        """When each running task began."""
        self._free: list[Worker] = []
        self._count = 0
        self._closed = False
        self.workers: list[Worker] = []
        self.dropped = 0
        """Tasks that were not run, because too many waited."""

    def submit(self, owner: Hashable, task: Task, urgency: int = 0) -> bool:
        """Run a task when it is its turn, the lowest `urgency` first; False: it will not be, as too many wait."""
        with self._changed:
            if self._closed or self._count >= _MAX_WAITING:
                self.dropped += 1
                return False
            self._count += 1
            if len(self._owners) >= _MAX_OWNERS:
                self._owners = {name: o for name, o in self._owners.items() if o.waiting or o.running}
            state = self._owners.setdefault(owner, _Owner())
            self._ready[owner] = state
            heapq.heappush(state.waiting, (urgency, next(self._numbers), task))
            self._call_worker()
            return True

    def forget(self, owner: Hashable) -> None:
        """Drop the tasks of an owner that have not begun, and what time it has had."""
        with self._changed:
            state = self._owners.get(owner)
            if state is None:
                return
            self._count -= len(state.waiting)
            state.waiting.clear()
            self._ready.pop(owner, None)
            if not state.running:
                del self._owners[owner]
            self._changed.notify_all()

    def waiting(self) -> int:
        """Return how many tasks wait or run."""
        with self._changed:
            return self._count + len(self._began)

    def settle(self, timeout_s: float) -> bool:
        """Wait until everything submitted so far is done; False when the time is up first."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._count and not self._began, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Drop what waits, and wait for what is under way; idempotent."""
        with self._changed:
            self._closed = True
            self._owners.clear()
            self._ready.clear()
            self._count = 0
        deadline = time.monotonic() + timeout_s
        for worker in self.workers:
            worker.stop(0)
        for worker in self.workers:
            worker.join(max(deadline - time.monotonic(), _ADDED))

    def _call_worker(self) -> None:
        if self._free:
            self._free.pop().wake()
        elif len(self.workers) < self._most:
            number = len(self.workers) + 1
            worker = Worker(f"{self._name} {number}", lambda: self._step(worker), stuck_after_s=_DEADLINE_S)
            try:
                worker.start()
            except OtelGpuError:
                if not self.workers:
                    raise
            else:
                self.workers.append(worker)

    def _step(self, me: Worker) -> float:
        with self._changed:
            if me in self._free:
                self._free.remove(me)
            taken = self._take(me)
            if taken is None:
                if self._count:
                    # A running task may become a long one, of which nobody tells.
                    return _LOOK_S
                self._free.append(me)
                return math.inf
        state, task = taken
        try:
            task()
        except Exception as e:  # noqa: BLE001 - what one owner makes go wrong must not cost the others
            me.component.note(e)
        finally:
            self._done(me, state)
        return 0.0

    def _take(self, me: Worker) -> tuple[_Owner, Task] | None:
        now = time.monotonic()
        if sum(now - began < _LONG_S for began in self._began.values()) >= self._at_once:
            return None
        ready = [
            (o.waiting[0][0], o.had_s, o.waiting[0][1], name)
            for name, o in self._ready.items()
            if o.running < self._of_one
        ]
        if not ready:
            return None
        *_, name = min(ready)
        state = self._ready[name]
        _, _, task = heapq.heappop(state.waiting)
        if not state.waiting:
            del self._ready[name]
        self._count -= 1
        state.running += 1
        self._began[me] = now
        return state, task

    def _done(self, me: Worker, state: _Owner) -> None:
        with self._changed:
            state.had_s += time.monotonic() - self._began.pop(me)
            state.running -= 1
            if state.waiting:
                self._call_worker()
            self._changed.notify_all()
