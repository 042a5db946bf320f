"""Where do a file's functions begin, and where in the file do their names stand? Sorted arrays, 13 bytes a function.

What fills them is a stranger's claim: a search in them finds something or nothing, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ...signals.structs import Frozen

FUNCTION = np.dtype([("size", "<u4"), ("name", "<u4"), ("table", "u1")])
_START = np.dtype("<u4")
_NESTED = 4
"""How many symbols back the one that encloses an address is searched for."""
_MAX_SPAN = 1 << 32
"""Code further from its file's first is none that a loader could place."""


class NamePlace(NamedTuple):
    """Where a function's name stands: in which of the index's string tables, and how far into it."""

    table: int
    offset: int


class Found(NamedTuple):
    """A function, and how far into it the address lies."""

    name: NamePlace
    offset: int


class FunctionIndex(Frozen):
    """The functions of one file. Addresses are the file's own (link-time)."""

    code: tuple[tuple[int, int], ...] = ()
    """Where its segments of code begin and end."""
    starts: bytes = b""
    """Little-endian 32-bit numbers, sorted, that count from where the first segment begins."""
    functions: bytes = b""
    """Of FUNCTION, in the same order."""
    failures: list[str] = msgspec.field(default_factory=list)
    """Why a source of names could not be read; the others are used all the same."""

    @property
    def size_bytes(self) -> int:
        """How much memory it takes."""
        return len(self.starts) + len(self.functions)

    def __len__(self) -> int:
        return min(len(self.starts) // _START.itemsize, len(self.functions) // FUNCTION.itemsize)

    @property
    def base(self) -> int:
        """What addresses in it count from."""
        return base_of(self.code)

    def find(self, addresses: Iterable[int]) -> list[Found | None]:
        """Return the functions that hold link-time addresses; None for those that are in no known one."""
        asked = np.fromiter(addresses, np.uint64)
        if not len(self):
            return [None] * asked.size
        starts = np.frombuffer(self.starts, _START, len(self))
        functions = np.frombuffer(self.functions, FUNCTION, len(self))
        in_code = is_in(self.code, asked)
        wanted = np.where(in_code, asked - np.uint64(self.base), 0).astype(np.uint32)
        at = np.searchsorted(starts, wanted, side="right").astype(np.int64) - 1
        chosen = np.full(wanted.size, -1, np.int64)
        for back in range(_NESTED):
            n = np.maximum(at - back, 0)
            offset = wanted - starts[n]
            size = functions["size"][n]
            # Hand-written code may state no size: such a symbol reaches to the next one, or to the end of the code.
            holds = (offset < size) | ((size == 0) & (back == 0))
            chosen = np.where((chosen < 0) & (at - back >= 0) & holds & in_code, n, chosen)
        return [
            None
            if n < 0
            else Found(NamePlace(int(functions["table"][n]), int(functions["name"][n])), relative - int(starts[n]))
            for n, relative in zip(chosen.tolist(), wanted.tolist(), strict=True)
        ]


def base_of(code: Sequence[tuple[int, int]]) -> int:
    """Return where the first segment of code begins."""
    return min((start for start, _ in code), default=0)


def is_in(code: Sequence[tuple[int, int]], values: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> np.ndarray:
    """Say of addresses whether they lie in segments of code."""
    inside = np.zeros(values.size, bool)
    for start, end in code:
        inside |= (values >= start) & (values < end)
    inside &= values - np.uint64(base_of(code)) < _MAX_SPAN
    return inside
