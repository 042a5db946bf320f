"""Is this word a pointer to the name of a kernel that the library has?"""

from __future__ import annotations

from collections.abc import Iterable

from ..process.memory import Memory, MemoryFault
from .stubs import MAX_NAME


class KernelStrings:
    """The strings of a mapped library that are names of its own kernels."""

    def __init__(self, memory: Memory, extent: tuple[int, int], names: Iterable[str]) -> None:
        self._memory = memory
        self._start, self._end = extent
        self._names = frozenset(names)
        self._known: dict[int, str | None] = {}

    def at(self, address: int) -> str | None:
        """Return the kernel name that begins at an address, None where none does."""
        if not self._start <= address < self._end:
            return None
        if address not in self._known:
            self._known[address] = self._read(address)
        return self._known[address]

    def _read(self, address: int) -> str | None:
        try:
            raw = self._memory.read(address, min(MAX_NAME, self._end - address))
        except MemoryFault:
            return None
        text, end, _ = raw.partition(b"\0")
        name = text.decode("latin-1")
        return name if end and name in self._names else None
