"""Where in a process's own memory do these values stand? A bounded search of what it has written.

Of the mappings that are searched only pages that are in memory now are read: nothing is swapped in or made to exist,
so the process is as large after the search as before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ....sandbox.memory import Mapping, MemoryFault, MemoryFiles

if TYPE_CHECKING:
    import numpy as np

AROUND = 8
"""How many words on each side of a value are returned with it."""

_MAX_BYTES = 1 << 30
_MAX_SECONDS = 5.0
_MAX_PLACES = 64
"""Of one value; one that stands in more places is a common number."""
_MAX_ALL_PLACES = 65_536
_CHUNK = 4 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT = 63
"""The bit of an entry of /proc/PID/pagemap that says that the page is in memory."""

Places = dict[int, list[tuple[int, ...]]]
"""For each value, what stands around each place that holds it: 2 * AROUND + 1 words with the value in the middle."""


def find_places(files: MemoryFiles, values: Collection[int], ranges: Iterable[tuple[int, int]]) -> Places:
    """Search parts of a process's memory, in their order, for 64-bit values."""
    import numpy as np

    wanted = np.array(sorted(values), np.uint64)
    found: Places = {}
    if not len(wanted):
        return found
    deadline = time.monotonic() + _MAX_SECONDS
    left = _MAX_BYTES
    for _, data in present_chunks(files, ranges, deadline):
        left -= len(data)
        if left < 0:
            return found
        _search(np.frombuffer(data[: len(data) // 8 * 8], np.uint64), wanted, found)
        if sum(map(len, found.values())) > _MAX_ALL_PLACES:
            return found
    return found


def present_chunks(
    files: MemoryFiles, ranges: Iterable[tuple[int, int]], deadline: float
) -> Iterator[tuple[int, bytes]]:
    """Yield what is in memory now of parts of a process's memory, (address, bytes), until the deadline."""
    for start, end in ranges:
        for run_start, run_end in _present(files.pagemap.descriptor, start, end, deadline):
            try:
                data = files.memory.read(run_start, run_end - run_start)
            except MemoryFault:
                continue  # unmapped since the list was made
            yield run_start, data


def allocated(mappings: Iterable[Mapping], avoided: Collection[int] = ()) -> list[tuple[int, int]]:
    """Return the heap and then the anonymous mappings, the smallest first, but none with an avoided address."""
    found = []
    for start, end, permissions, name in mappings:
        avoid = any(start <= address < end for address in avoided)
        is_allocated = name in (b"", b"[heap]") or name.startswith(b"[anon:")
        if is_allocated and not avoid and _is_written(permissions):
            found.append((name != b"[heap]", end - start, start, end))
    return [(start, end) for *_, start, end in sorted(found)]


def variables(mappings: Iterable[Mapping], extent: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the parts of a library's extent that can be written."""
    # Whole pages; and a mapping may begin before the extent, merged with what is not the library's.
    first, last = extent[0] // _PAGE * _PAGE, -(-extent[1] // _PAGE) * _PAGE
    parts = [(max(m.start, first), min(m.end, last)) for m in mappings if _is_written(m.permissions)]
    return [(start, end) for start, end in parts if start < end]


def _is_written(permissions: bytes) -> bool:
    return permissions.startswith(b"rw") and permissions.endswith(b"p")


def _present(pagemap: int, start: int, end: int, deadline: float) -> Iterator[tuple[int, int]]:
    """Yield the parts of a mapping that are in memory, none larger than a chunk."""
    import numpy as np

    for chunk in range(start, end, _CHUNK):
        if time.monotonic() > deadline:
            return
        pages = (min(chunk + _CHUNK, end) - chunk) // _PAGE
        entries = os.pread(pagemap, 8 * pages, chunk // _PAGE * 8)
        present = np.frombuffer(entries[: len(entries) // 8 * 8], np.uint64) >> np.uint64(_PRESENT)
        edges = np.flatnonzero(np.diff(present, prepend=np.uint64(0), append=np.uint64(0))).tolist()
        for first, last in zip(edges[::2], edges[1::2], strict=True):
            yield chunk + first * _PAGE, chunk + last * _PAGE


def _search(words: np.ndarray[Any, np.dtype[np.uint64]], wanted: np.ndarray[Any, Any], found: Places) -> None:
    import numpy as np

    near = np.flatnonzero((words - wanted[0]) <= (wanted[-1] - wanted[0]))
    for at in near[np.isin(words[near], wanted)].tolist():
        places = found.setdefault(int(words[at]), [])
        if len(places) < _MAX_PLACES and AROUND <= at < len(words) - AROUND:
            places.append(tuple(words[at - AROUND : at + AROUND + 1].tolist()))
