"""How much time is left for all of it? One moment by which several things in a row shall be over."""

from __future__ import annotations

import time


class Deadline:
    """A moment on the monotonic clock, handed on from one to the next, each of which takes what it needs."""

    __slots__ = ("_at",)

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until then; 0 when it has passed."""
        return max(0.0, self._at - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether it has passed."""
        return self.left_s <= 0
