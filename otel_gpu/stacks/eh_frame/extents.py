"""Which part of a table is free? First fit over runs of slots, neighbours merged."""

from __future__ import annotations

import bisect


class Extents:
    """Hands out runs of slots of a table of fixed size."""

    def __init__(self, size: int) -> None:
        self._free: list[tuple[int, int]] = [(0, size)]
        """(start, length), sorted by start, never touching."""

    def take(self, length: int) -> int | None:
        """Return the first slot of a run, None when no run is that long."""
        for i, (start, available) in enumerate(self._free):
            if available >= length:
                if available == length:
                    del self._free[i]
                else:
                    self._free[i] = (start + length, available - length)
                return start
        return None

    def give_back(self, start: int, length: int) -> None:
        """Free a run that was taken."""
        if not length:
            return
        at = bisect.bisect_left(self._free, (start, 0))
        if at < len(self._free) and start + length == self._free[at][0]:
            length += self._free[at][1]
            del self._free[at]
        if at and sum(self._free[at - 1]) == start:
            before = self._free[at - 1]
            self._free[at - 1] = (before[0], before[1] + length)
        else:
            self._free.insert(at, (start, length))

    def copy(self) -> Extents:
        """Return a table on which something can be tried."""
        copied = Extents(0)
        copied._free = self._free.copy()
        return copied

    @property
    def longest(self) -> int:
        """How many slots the longest free run has."""
        return max((length for _, length in self._free), default=0)

    @property
    def free(self) -> int:
        """How many slots are free."""
        return sum(length for _, length in self._free)
