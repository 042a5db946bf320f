"""What stands at this address of another process? Bounded reads of what the kernel shows as its memory.

What comes back is the target's own claim: every pointer, length and type in it is checked by whoever asked, and whatever
cannot be read is a `MemoryFault`, never a guess. A read may take for ever where the target has put something behind its
addresses that does not answer: it is for a child that can be given up (parser_child.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from ..errors import OtelGpuError, ProcessGoneError
from ..signals.structs import Frozen
from .files import File, ProcessFile
from .work import GONE, OpenFile

_PIECE = 1 << 20
_MAX_MAPS = 64 << 20
_USER_SPACE_END = 1 << 56
"""Above every user address of x86-64 (also with five-level paging) and arm64; pread takes no larger offset."""


class MemoryFault(OtelGpuError):
    """An address of the target cannot be read: unmapped, freed, or never a pointer."""


class Memory(Protocol):
    """Anything whose bytes can be read by address."""

    def read(self, address: int, size: int) -> bytes:
        """Return exactly `size` bytes; raises MemoryFault where they are not all there."""
        ...


class ProcessMemory:
    """The memory of one live process, by a descriptor of its `mem`, which whoever opened it closes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, address: int, size: int) -> bytes:
        """Return exactly `size` bytes; MemoryFault where they are not mapped, ProcessGoneError after exit."""
        if self._descriptor < 0 or not 0 <= address < _USER_SPACE_END:
            raise MemoryFault(f"{address:#x} is no user-space address")
        try:
            data = os.pread(self._descriptor, size, address)
        except OSError as e:
            raise MemoryFault(f"nothing is mapped at {address:#x}") from e
        # The kernel answers end-of-file once the address space is gone.
        if not data and size:
            raise ProcessGoneError("the process has ended; its memory cannot be read")
        if len(data) != size:
            raise MemoryFault(f"only {len(data)} of {size} bytes are mapped at {address:#x}")
        return data


class Mapping(NamedTuple):
    """A part of a process's memory."""

    start: int
    end: int
    permissions: bytes
    """As in `rw-p`: the last letter is `p` for memory of its own."""
    name: bytes
    """The file, what the kernel calls it, or nothing."""

    @property
    def is_private(self) -> bool:
        """Whether the process can read it, and changes to it are its own."""
        return self.permissions.startswith(b"r") and self.permissions.endswith(b"p")


class MemoryFiles(Frozen):
    """The files in which the kernel shows a process's memory, as a child has them open."""

    memory: ProcessMemory
    maps: OpenFile
    pagemap: OpenFile

    @staticmethod
    def of(pid: int) -> list[File]:
        """Return the files that `opened` takes."""
        return [ProcessFile(pid, name) for name in ("mem", "maps", "pagemap")]

    @classmethod
    def opened(cls, files: Sequence[OpenFile]) -> MemoryFiles:
        """Take the files of a process."""
        memory, maps, pagemap = files
        return cls(ProcessMemory(memory.descriptor), maps, pagemap)

    def read_maps(self) -> bytes:
        """Return the list of mappings as it is now; ProcessGoneError after exit, MemoryFault where it may not be read."""
        if self.maps.descriptor < 0 and self.maps.error not in GONE:
            raise MemoryFault(f"the mappings cannot be read: {self.maps.reason}")
        data = bytearray()
        while self.maps.descriptor >= 0 and len(data) < _MAX_MAPS and (piece := self.maps.read(len(data), _PIECE)):
            data += piece
        if not data:
            raise ProcessGoneError("the process has ended; its mappings cannot be read")
        return bytes(data)

    def mappings(self) -> Iterator[Mapping]:
        """Yield what is mapped now."""
        for line in self.read_maps().splitlines():
            fields = line.split(None, 5)
            if len(fields) >= 5:
                start, _, end = fields[0].partition(b"-")
                yield Mapping(int(start, 16), int(end, 16), fields[1], fields[5] if len(fields) > 5 else b"")
