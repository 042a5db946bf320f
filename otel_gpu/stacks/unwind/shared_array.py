"""How is an array filled that the kernel's programs read?

Through shared memory, without a system call an element. Only what is being written is mapped, and only as long: the
whole array, of 64 MB and more, would else stand in the agent's resident memory for good.
"""

from __future__ import annotations

import mmap

import numpy as np
import numpy.typing as npt

from ...bpf.maps import BpfMap


class SharedArray:
    """An array map whose elements are rows of a numpy type."""

    def __init__(self, table: BpfMap, kind: np.dtype[np.void]) -> None:
        self._table = table
        self._kind = kind
        self._end = -(-table.max_entries * kind.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE

    def write(self, first: int, values: npt.NDArray[np.void]) -> None:
        """Write elements from `first` on."""
        begin, size = first * self._kind.itemsize, values.size * self._kind.itemsize
        if not 0 <= begin <= begin + size <= self._end:
            raise ValueError(f"elements {first} to {first + values.size} lie outside the array")
        if not size:
            return
        page = begin - begin % mmap.PAGESIZE
        with mmap.mmap(self._table.fd, begin + size - page, offset=page) as window:
            target = np.frombuffer(window, self._kind, values.size, begin - page)
            target[:] = values
            # The window cannot be closed while an array looks into it.
            del target
