"""How are many processes looked at so that none holds up the others? Side by side, each at one thing after the other."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

_log = logging.getLogger(__name__)
_MAX_THREADS = 8
_MAX_WAITING = 65_536
"""Tasks of all processes together."""

Task = Callable[[], None]


class Looks:
    """Runs the tasks of each process in their order, those of different processes in any."""

    def __init__(self, name: str) -> None:
        """Threads are started as they are needed; `name` is theirs."""
        self._name = name
        self._changed = threading.Condition()
        self._tasks: dict[int, deque[Task]] = {}
        """By process; one whose task is being run is in here without being ready."""
        self._ready: deque[int] = deque()
        self._waiting = 0
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False
        self.dropped = 0
        """Tasks that were not run, because too many waited."""

    def submit(self, pid: int, task: Task) -> None:
        """Run a task once those of its process that were submitted before are done."""
        with self._changed:
            if self._closed or self._waiting >= _MAX_WAITING:
                self.dropped += 1
                return
            self._waiting += 1
            if (tasks := self._tasks.get(pid)) is not None:
                tasks.append(task)
                return
            self._tasks[pid] = deque((task,))
            self._ready.append(pid)
            if not self._idle and len(self._threads) < _MAX_THREADS:
                thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()

    def settle(self, timeout_s: float) -> bool:
        """Wait until everything submitted so far is done; False when the time is up first."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._tasks, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Drop what waits, and wait for what is under way."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout_s / len(self._threads))

    def _run(self) -> None:
        while (pid := self._next()) is not None:
            try:
                self._tasks[pid][0]()
            except Exception:  # noqa: BLE001 - what one process makes go wrong must not cost the others
                _log.warning("process %d could not be looked at", pid, exc_info=True)
            self._done(pid)

    def _next(self) -> int | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._ready or self._closed)
            self._idle -= 1
            return None if self._closed else self._ready.popleft()

    def _done(self, pid: int) -> None:
        with self._changed:
            self._waiting -= 1
            tasks = self._tasks[pid]
            tasks.popleft()
            if tasks:
                self._ready.append(pid)
                self._changed.notify()
            else:
                del self._tasks[pid]
                self._changed.notify_all()
