"""A stopwatch that does not count the time in which the host kept the processes under test from running.

An agent promises to end within a time where it gets a CPU. A thread's wait for a CPU (`/proc/PID/task/TID/schedstat`) is
the host's doing. The stopwatch takes off the longest such wait of a single thread. It never takes off more than the time
passed, however many threads wait side by side, and nothing that other programs of the host wait for.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

_LOOK_S = 0.05


class Stopwatch:
    """Measures from its making on; as a context manager until the context ends.

    The processes under test are those of `pids` with their children, else this process alone. A thread's wait is seen as
    long as the thread lives: the context looks every 50 ms, `seconds()` once.
    """

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._before = dict(self._waits())
        self._longest_s = 0.0
        self._began = time.monotonic()
        self._passed_s: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, daemon=True)

    def seconds(self) -> float:
        """Return the seconds since the making, or of the context, less the longest wait of a thread for a CPU."""
        if self._passed_s is not None:
            return self._passed_s
        passed = time.monotonic() - self._began
        self._look()
        return passed - self._longest_s

    def __enter__(self) -> Stopwatch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        passed_s = self.seconds()
        self._over.set()
        self._thread.join()
        self._passed_s = passed_s

    def _keep_looking(self) -> None:
        while not self._over.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        for thread, waited_s in self._waits():
            self._longest_s = max(self._longest_s, waited_s - self._before.get(thread, 0.0))

    def _waits(self) -> Iterator[tuple[int, float]]:
        if not self._pids:
            yield from _threads(os.getpid())
            return
        for pid in self._pids:
            for process in _family(pid):
                yield from _threads(process)


def _threads(pid: int) -> Iterator[tuple[int, float]]:
    """Yield each thread of a process, and for how many seconds it has waited for a CPU."""
    for task in _tasks(pid):
        try:
            waited_ns = int((task / "schedstat").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            continue
        yield int(task.name), waited_ns / 1e9


def _family(pid: int) -> Iterator[int]:
    yield pid
    for task in _tasks(pid):
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _family(int(child))


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
