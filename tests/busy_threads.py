"""Threads that tests leave behind and that go on computing: they take a CPU from every later test.

A thread counts as busy when it used half of a CPU since the last look, which was at the end of the module before. The module at
whose end it is found fails; the thread's name and stack lead to the test that started it.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from pathlib import Path

_SHORTEST_S = 0.5


class BusyThreads:
    """Looks at this process's threads from one module of tests to the next."""

    def __init__(self, share: float = 0.5) -> None:
        """`share` of a CPU is what a busy thread uses."""
        self._share = share
        self._looked = 0.0
        self._used: dict[int, float] = {}

    def look(self) -> list[str]:
        """Return a line and the stack of each thread, but this one, that was busy since the last look."""
        now = time.monotonic()
        passed_s, found = now - self._looked, []
        if passed_s < _SHORTEST_S:
            return []
        used = {thread: _cpu_s(thread) for thread in threading.enumerate() if thread is not threading.current_thread()}
        for thread, used_s in used.items():
            before = self._used.get(thread.native_id)
            if before is not None and used_s - before > passed_s * self._share:
                found.append(f"{thread.name} used {used_s - before:.1f} s of CPU in {passed_s:.1f} s\n{_stack(thread)}")
        self._looked, self._used = now, {thread.native_id: used_s for thread, used_s in used.items()}
        return found


def _cpu_s(thread: threading.Thread) -> float:
    try:
        return int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0


def _stack(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""
