"""What stands in a process's private memory? Read page by page, each page once, and never from a device."""

from __future__ import annotations

import bisect
import os

from ..discovery import procfs
from ..errors import ProcessGoneError
from ..process.memory import MemoryFault, memory_of

_MAX_MAPS = 64 << 20
_MAX_PAGES = 16_384
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SPECIAL = (b"/dev/", b"[v", b"[stack")


class PrivatePages:
    """A process's memory as it was when each page was first asked for. Use as a context manager."""

    def __init__(self, pid: int) -> None:
        self._opened = memory_of(pid)
        self._memory = self._opened.__enter__()
        self._pages: dict[int, bytes | None] = {}
        ranges = sorted(_private(pid))
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]

    def __enter__(self) -> PrivatePages:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.__exit__(None, None, None)

    def read(self, address: int, size: int) -> bytes:
        """Return exactly `size` bytes; MemoryFault where they are not private memory, or too much was read."""
        first, last = address // _PAGE, (address + size - 1) // _PAGE
        data = b"".join(self._page(number) for number in range(first, last + 1))
        return data[address - first * _PAGE :][:size]

    def _page(self, number: int) -> bytes:
        if number not in self._pages:
            if len(self._pages) >= _MAX_PAGES:
                raise MemoryFault("more pages were asked for than are read at one time")
            self._pages[number] = self._read(number * _PAGE)
        if (page := self._pages[number]) is None:
            raise MemoryFault(f"{number * _PAGE:#x} is not private memory")
        return page

    def _read(self, address: int) -> bytes | None:
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0 or address >= self._ends[at]:
            return None
        try:
            return self._memory.read(address, _PAGE)
        except ProcessGoneError:
            raise
        except MemoryFault:
            return None


def _private(pid: int) -> list[tuple[int, int]]:
    found = []
    for line in procfs.read(pid, "maps", _MAX_MAPS).splitlines():
        fields = line.split(None, 5)
        if len(fields) < 5 or not fields[1].startswith(b"r") or not fields[1].endswith(b"p"):
            continue
        if len(fields) > 5 and fields[5].startswith(_SPECIAL):
            continue
        start, _, end = fields[0].partition(b"-")
        found.append((int(start, 16), int(end, 16)))
    return found
