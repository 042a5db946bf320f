"""Where in a process's own memory do these values stand? A bounded search of what it has written.

Of the mappings that are searched only pages that are in memory now are read: nothing is swapped in or made to exist,
so the process is as large after the search as before.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..discovery import procfs
from ..errors import ProcessGoneError

if TYPE_CHECKING:
    import numpy as np

AROUND = 8
"""How many words on each side of a value are returned with it."""

_MAX_BYTES = 1 << 30
_MAX_SECONDS = 5.0
_MAX_PLACES = 64
"""Of one value; one that stands in more places is a common number."""
_CHUNK = 4 << 20
_MAX_MAPS = 64 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT = 63
"""The bit of an entry of /proc/PID/pagemap that says that the page is in memory."""

Places = dict[int, list[tuple[int, ...]]]
"""For each value, what stands around each place that holds it: 2 * AROUND + 1 words with the value in the middle."""


def find_places(pid: int, values: Collection[int], mappings: Iterable[tuple[int, int]]) -> Places:
    """Search parts of a process's memory, in their order, for 64-bit values."""
    import numpy as np

    wanted = np.array(sorted(values), np.uint64)
    found: Places = {}
    if not len(wanted):
        return found
    deadline = time.monotonic() + _MAX_SECONDS
    left = _MAX_BYTES
    for _, data in present_chunks(pid, mappings):
        left -= len(data)
        if left < 0 or time.monotonic() > deadline:
            return found
        _search(np.frombuffer(data[: len(data) // 8 * 8], np.uint64), wanted, found)
    return found


def present_chunks(pid: int, mappings: Iterable[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    """Yield what is in memory now of parts of a process's memory: (address, bytes)."""
    try:
        with open(f"/proc/{pid}/mem", "rb", 0) as memory, open(f"/proc/{pid}/pagemap", "rb", 0) as pagemap:
            for start, end in mappings:
                for run_start, run_end in _present(pagemap.fileno(), start, end):
                    with contextlib.suppress(OSError):  # unmapped since the list was made
                        yield run_start, os.pread(memory.fileno(), run_end - run_start, run_start)
    except (FileNotFoundError, ProcessLookupError) as e:
        raise ProcessGoneError(f"process {pid} is gone") from e


def allocated(pid: int, avoided: Collection[int] = ()) -> list[tuple[int, int]]:
    """Return the heap and then the anonymous mappings, the smallest first, but none with an avoided address."""
    found = []
    for start, end, name in _writable(pid):
        avoid = any(start <= address < end for address in avoided)
        if not avoid and (name in (b"", b"[heap]") or name.startswith(b"[anon:")):
            found.append((name != b"[heap]", end - start, start, end))
    return [(start, end) for *_, start, end in sorted(found)]


def variables(pid: int, extent: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the parts of a library's extent that can be written."""
    # Whole pages; and a mapping may begin before the extent, merged with what is not the library's.
    first, last = extent[0] // _PAGE * _PAGE, -(-extent[1] // _PAGE) * _PAGE
    parts = [(max(start, first), min(end, last)) for start, end, _ in _writable(pid)]
    return [(start, end) for start, end in parts if start < end]


def _writable(pid: int) -> Iterator[tuple[int, int, bytes]]:
    for line in procfs.read(pid, "maps", _MAX_MAPS).splitlines():
        fields = line.split(None, 5)
        if len(fields) >= 5 and fields[1].startswith(b"rw") and fields[1].endswith(b"p"):
            start, _, end = fields[0].partition(b"-")
            yield int(start, 16), int(end, 16), fields[5] if len(fields) > 5 else b""


def _present(pagemap: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a mapping that are in memory, none larger than a chunk."""
    import numpy as np

    for chunk in range(start, end, _CHUNK):
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
