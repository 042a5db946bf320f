"""Did the probes come in time? What a process calls between mapping a library and its probes being there is not counted."""

from __future__ import annotations

import enum
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

from ..discovery.libraries import Library
from ..discovery.processes import Process
from ..discovery.program_id import ProgramId
from ..signals import self_metrics
from ..signals.metrics import SelfReading
from ..text import escaped

_log = logging.getLogger(__name__)

LATE_S = 1.0
"""Later than this a program may well have begun to work: a driver takes longer than a moment to start."""
_LINES, _PER_S = 20, 60.0
"""So many lines are written in so long a time: many programs may have started while the agent stood still."""
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Late(str, enum.Enum):
    """Why a program made calls, perhaps, that are in no count."""

    BEFORE_AGENT = "before_agent"
    """It was there before the agent."""
    DELAYED = "delayed"
    """Its probes took long."""


class Lateness:
    """Notes how late probes came to programs that began after it. Safe to use from several threads."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        """`tell` is told of each delay in seconds."""
        self._tell = tell
        self._since_ns = time.monotonic_ns()
        self._lock = threading.Lock()
        self._lines: list[float] = []
        self._older: set[ProgramId] = set()
        """Programs that were there before the agent: so many at the most as there were then."""
        self._late: Counter[Late] = Counter()

    def attached(self, process: Process, library: Library, mapped_ns: int | None, placed_ns: int) -> None:
        """Note when a process mapped a library and when its probes were in place, both by the monotonic clock.

        Where nobody heard of the mapping it is as old as the process at the most.
        """
        since_ns = _start_ns(process) if mapped_ns is None else mapped_ns
        late_s = (placed_ns - since_ns) / 1e9
        if late_s <= 0:
            return
        if since_ns < self._since_ns:
            self._note_older(process)
            return
        self._tell(late_s)
        if late_s < LATE_S:
            return
        with self._lock:
            self._late[Late.DELAYED] += not process.late
        # Of what it has mapped and locked the agent knows as little as of a program that was there before it.
        process.late = True
        if self._may_write():
            name = dict(process.resource.attributes).get("process.executable.name", "")
            _log.warning(
                "process %d (%s) mapped %s %s%.1f s before its probes were in place: what it called meanwhile is not counted",
                process.pid,
                escaped(str(name)),
                escaped(str(library.path)),
                "up to " if mapped_ns is None else "",
                late_s,
            )

    @property
    def older(self) -> int:
        """How many programs were there before the agent."""
        return self._late[Late.BEFORE_AGENT]

    def readings(self) -> Iterator[SelfReading]:
        """Yield how many programs may have made calls that are in no count."""
        with self._lock:
            late = list(self._late.items())
        for why, programs in late:
            yield SelfReading(self_metrics.PROCESSES_LATE, programs, {"otel_gpu.reason": why.value})

    def _note_older(self, process: Process) -> None:
        with self._lock:
            if process.program not in self._older:
                self._older.add(process.program)
                self._late[Late.BEFORE_AGENT] += 1

    def _may_write(self) -> bool:
        with self._lock:
            now = time.monotonic()
            self._lines = [at for at in self._lines if now - at < _PER_S]
            if len(self._lines) >= _LINES:
                return False
            self._lines.append(now)
            return True


def _start_ns(process: Process) -> int:
    """Return when a process began, by the monotonic clock; 0 where that is not known."""
    if process.start_ticks < 0:
        return 0
    # The kernel tells it by a clock that goes on while the machine sleeps.
    asleep_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return process.start_ticks * 1_000_000_000 // _TICKS_A_SECOND - asleep_ns
