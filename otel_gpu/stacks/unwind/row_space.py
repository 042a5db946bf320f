"""Where in the kernel's array of rows does each table lie? Written first, used then, and given back when no walk is left in it."""

from __future__ import annotations

import time
from collections import deque

import numpy as np
import numpy.typing as npt

from ...bpf.maps import BpfMap
from ..eh_frame.extents import Extents
from .shared_array import SharedArray

_WALKS_END_S = 1.0
"""After so long no walk is left that began with what has been replaced."""


class RowSpace:
    """Runs of elements of an array that the kernel's programs read. Owned by whoever holds the loader's lock."""

    def __init__(self, table: BpfMap, kind: np.dtype[np.void]) -> None:
        self._array = SharedArray(table, kind)
        self._space = Extents(table.max_entries)
        self._retired: deque[tuple[float, int, int]] = deque()
        self.size = table.max_entries

    @property
    def free(self) -> int:
        """How many elements are free, or will be as soon as no walk is left in them."""
        return self._space.free + sum(length for _, _, length in self._retired)

    def write(self, values: npt.NDArray[np.void]) -> int | None:
        """Write a run and return its first element's number; None where there is no room."""
        now = time.monotonic()
        while self._retired and now - self._retired[0][0] > _WALKS_END_S:
            _, start, length = self._retired.popleft()
            self._space.give_back(start, length)
        first = self._space.take(len(values)) if len(values) else 0
        if first is not None:
            self._array.write(first, values)
        return first

    def retire(self, first: int, length: int) -> None:
        """Give a run back once no walk can still be in it."""
        if length:
            self._retired.append((time.monotonic(), first, length))
