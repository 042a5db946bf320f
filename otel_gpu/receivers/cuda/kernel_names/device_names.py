"""Which kernels are in the device code that a process has now, in its memory or in files?

Code that a program gives to the driver is an ELF file for the GPU, a fatbin of such files, or PTX text. Only what device
code says is a kernel counts: no parameter, no section, no function that kernels call.

Everything here is bounded, and pages that are not in memory are not read.
"""

from __future__ import annotations

import contextlib
import re
import struct
import time
from collections.abc import Iterable, Iterator

import msgspec

from ....errors import OtelGpuError
from ....sandbox.memory import Mapping, Memory, MemoryFault, MemoryFiles
from ....signals.structs import Record
from .fatbin import CUBIN_MACHINE, FATBIN_MAGIC, kernels_in_sections, kernels_of_image
from .resident_pages import present_chunks
from .stub_map import MAX_NAME

_MAX_BYTES = 1 << 30
_MAX_SECONDS = 5.0
_MAX_NAMES = 100_000
_MAX_IMAGE = 64 << 20
_MAX_NAMES_BYTES = 16 << 20
_OVERLAP = MAX_NAME + 64
"""A name in PTX may begin in one piece of memory and end in the next."""
_PTX, _ELF, _FAT = b".entry", b"\x7fELF\x02\x01", struct.pack("<I", FATBIN_MAGIC)
_PTX_KERNEL = re.compile(rb"\.entry\s+([\w$%%]{1,%d})(?=[\s(])" % MAX_NAME)
_HEADER = struct.Struct("<18xH20xQ10xHHH")  # machine, section table, size of an entry, entries, the one with the names
_SECTION = struct.Struct("<24xQQ24x")  # offset, size
_FATBIN = struct.Struct("<IHHQ")


class _Found(Record):
    names: set[str] = msgspec.field(default_factory=set)
    left: int = _MAX_BYTES
    left_of_names: int = _MAX_NAMES_BYTES
    deadline: float = msgspec.field(default_factory=lambda: time.monotonic() + _MAX_SECONDS)

    def spend(self, size: int) -> bool:
        """Say whether so much more may be read."""
        self.left -= size
        is_room = self.left >= 0 and self.left_of_names >= 0 and len(self.names) < _MAX_NAMES
        return is_room and time.monotonic() < self.deadline

    def add(self, names: Iterable[bytes]) -> None:
        """Add kernels of one image."""
        new = {name.decode("latin-1") for name in names if len(name) <= MAX_NAME} - self.names
        self.left_of_names -= sum(map(len, new))
        self.names |= new


def names_in_memory(files: MemoryFiles) -> frozenset[str]:
    """Return the kernels in the device code that a process has in memory."""
    found = _Found()
    tail, expected = b"", 0
    for start, data in present_chunks(files, _ranges(files.mappings()), found.deadline):
        if not found.spend(len(data)):
            break
        before = tail if start == expected else b""
        _search(before + data, found, files.memory, start - len(before))
        tail, expected = data[-_OVERLAP:], start + len(data)
    return frozenset(found.names)


def names_in_files(contents: Iterable[bytes]) -> frozenset[str]:
    """Return the kernels in the device code of files."""
    found = _Found()
    for data in contents:
        if not found.spend(len(data)):
            break
        _search(data, found, _Bytes(data), 0)
    return frozenset(found.names)


def _search(data: bytes, found: _Found, memory: Memory, base: int) -> None:
    """Add the kernels of what looks like device code; an image is read from memory, for it may end behind the data."""
    for at in _all(data, _PTX):
        if match := _PTX_KERNEL.match(data, at):
            found.add((match[1],))
    for magic, read in ((_ELF, _cubin), (_FAT, _fatbin)):
        for at in _all(data, magic):
            if not found.spend(0):
                return
            with contextlib.suppress(OtelGpuError, struct.error):
                found.add(read(memory, base + at))


def _all(data: bytes, what: bytes) -> Iterator[int]:
    at = data.find(what)
    while at >= 0:
        yield at
        at = data.find(what, at + 1)


def _fatbin(memory: Memory, address: int) -> Iterable[bytes]:
    _, _, header, size = _FATBIN.unpack(memory.read(address, _FATBIN.size))
    if header + size > _MAX_IMAGE:
        return ()
    return [name.encode() for name in kernels_of_image(memory.read(address, header + size), _MAX_IMAGE).kernels]


def _cubin(memory: Memory, address: int) -> Iterable[bytes]:
    machine, table, entry, count, strings = _HEADER.unpack(memory.read(address, _HEADER.size))
    if machine != CUBIN_MACHINE or entry != _SECTION.size or not strings < count or table > _MAX_IMAGE:
        return ()
    offset, size = _SECTION.unpack(memory.read(address + table + strings * entry, entry))
    if offset + size > _MAX_IMAGE:
        return ()
    return kernels_in_sections(memory.read(address + offset, size).split(b"\0"))


class _Bytes:
    """A file's contents, read by offset."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, address: int, size: int) -> bytes:
        piece = self._data[address : address + size]
        if len(piece) != size:
            raise MemoryFault("the file ends before")
        return piece


def _ranges(mappings: Iterable[Mapping]) -> list[tuple[int, int]]:
    """Return what a process has in private memory, its own data first, then the smallest files."""
    found = sorted(
        (m.name.startswith(b"/"), m.end - m.start, m.start, m.end)
        for m in mappings
        if m.is_private and not m.name.startswith((b"/dev/", b"[v"))
    )
    return [(start, end) for *_, start, end in found]
