"""What stands in a process's private memory? Read page by page, each page once, and never from a device."""

from __future__ import annotations

import bisect
import os

from ....errors import ProcessGoneError
from ....sandbox.memory import MemoryFault, MemoryFiles

_MAX_PAGES = 16_384
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SPECIAL = (b"/dev/", b"[v", b"[stack")


class PrivatePages:
    """A process's memory as it was when each page was first asked for."""

    def __init__(self, files: MemoryFiles) -> None:
        self._memory = files.memory
        self._pages: dict[int, bytes | None] = {}
        private = (m for m in files.mappings() if m.is_private and not m.name.startswith(_SPECIAL))
        ranges = sorted((m.start, m.end) for m in private)
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]

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
