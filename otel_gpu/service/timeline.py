"""What time is it, when the clock may be set? Times that rise from one to the next, unless a new time begins."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Nanoseconds since some moment."""

_TOLERANCE_NS = 1_000_000_000
"""By so much the clock may be set back unnoticed: times wait for it to catch up, a nanosecond apart."""


class Timeline:
    """Unix times, in nanoseconds. Owned by one thread.

    A clock that is set forward, as at boot, is followed. Where it is set back, no time that was given out may come
    again: then everything that carries its beginning begins anew.
    """

    def __init__(self, clock: Clock = time.time_ns, steady: Clock = time.monotonic_ns) -> None:
        self._clock = clock
        self._steady = steady
        self._latest_ns = 0
        self._latest_steady_ns = steady()

    def next(self) -> int:
        """Return a time later than every one before."""
        self._latest_ns = max(self._clock(), self._latest_ns + 1)
        self._latest_steady_ns = self._steady()
        return self._latest_ns

    @property
    def was_set_back(self) -> bool:
        """Whether the clock shows a time before one that was given out."""
        return self._clock() < self._latest_ns - _TOLERANCE_NS

    def begin_anew(self) -> tuple[int, int]:
        """Return the last time before the clock was set back, and what it would have shown then as it is set now."""
        last_ns = self._latest_ns + 1
        elapsed_ns = max(self._steady() - self._latest_steady_ns, 1)
        self._latest_ns = max(self._clock() - elapsed_ns, 0)
        return last_ns, self._latest_ns
