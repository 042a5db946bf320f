"""Which kernels does device code hold: a library's fatbins, a cubin, PTX?

A fatbin is a header and entries, each the code for one GPU architecture: PTX text or a cubin (an ELF file), stored as
it is or compressed with LZ4 or Zstandard. Nothing in it is believed: sizes are checked against the file, decompression
has a budget, and what cannot be read is counted.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Iterator

import msgspec

from ....errors import ElfError, OtelGpuError
from ....sandbox.elf import ElfFile
from ....signals.structs import Frozen, Record
from .stub_map import MAX_KERNELS, MAX_NAME, clean_name

FATBIN_SECTIONS = (".nv_fatbin", "__nv_relfatbin")

FATBIN_MAGIC = 0xBA55ED50
_MAGIC = FATBIN_MAGIC.to_bytes(4, "little")
_ALIGNED = 8
_STEP = 1 << 20
CUBIN_MACHINE = 190

_PTX, _CUBIN = 1, 2
_HEADER = struct.Struct("<IHHQ")  # magic, version, header size, size of all entries
_ENTRY = struct.Struct(
    "<HHIQI8xI8xQQQ"
)  # kind, version, header size, padded size, compressed size, sm, flags, -, raw size
_MAX_ENTRY_HEADER = 4_096
_MAX_IMAGE = 256 << 20
_MAX_DECOMPRESSED = 16 << 30
_MAX_RATIO = 256
"""Of all that a file's device code unpacks to, to what is stored; LZ4 packs no better, and code not nearly as well."""
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_PTX_KERNEL = re.compile(rb"\.entry\s+([\w$]{1,%d})" % MAX_NAME)
_CUBIN_KERNEL = b".nv.constant0."
_CUBIN_CODE = b".text."


Read = Callable[[int, int], bytes]
"""Returns so many bytes at an offset, less where there are none."""


class FatbinError(OtelGpuError):
    """Device code is not what its header says."""


class Entry(Frozen):
    """The code for one architecture: where it is stored, and `raw_size` where it is compressed, else 0."""

    kind: int
    architecture: int
    offset: int
    size: int
    raw_size: int


class DeviceCode(Record):
    """The kernels that were found, and what could not be read."""

    kernels: set[str] = msgspec.field(default_factory=set)
    entries: int = 0
    unreadable: int = 0
    dropped: int = 0
    """Kernels beyond MAX_KERNELS."""

    def add(self, names: Iterator[bytes]) -> None:
        """Add the kernels of one image."""
        for raw in names:
            name = clean_name(raw)
            if name in self.kernels:
                continue
            if len(self.kernels) < MAX_KERNELS:
                self.kernels.add(name)
            else:
                self.dropped += 1


def kernels_of_image(image: bytes, budget: int = _MAX_DECOMPRESSED) -> DeviceCode:
    """Return the kernels in what a program gives to cuModuleLoadData: a fatbin, a cubin or PTX."""
    code = DeviceCode()
    budget = min(budget, _MAX_RATIO * len(image))
    if image[:4] == FATBIN_MAGIC.to_bytes(4, "little"):
        for entry in entries(_part_of(image), 0, len(image)):
            budget = _read_entry(_part_of(image), entry, code, budget)
        return code
    kind = _CUBIN if image[:4] == b"\x7fELF" else _PTX
    code.entries = 1
    _read_image(kind, image, code)
    return code


def _part_of(image: bytes) -> Read:
    return lambda offset, size: image[offset : offset + size]


def entries(read: Read, start: int, end: int) -> Iterator[Entry]:
    """Yield the entries of all fatbins in a range; stops where the headers no longer fit in."""
    at = start
    while (found := _next_fatbin(read, at, end)) is not None:
        at = found
        _, _, header_size, size = _HEADER.unpack(read(at, _HEADER.size))
        position = at + max(header_size, _HEADER.size)  # what claims to have no header would be found for ever
        at = min(position + size, end)
        while position + _ENTRY.size <= at:
            kind, _, entry_header, padded, compressed, sm, _, _, raw_size = _ENTRY.unpack(read(position, _ENTRY.size))
            stored = position + entry_header
            if not _ENTRY.size <= entry_header <= _MAX_ENTRY_HEADER or stored + padded > at or not padded:
                break
            if kind in (_PTX, _CUBIN):
                yield Entry(kind, sm, stored, compressed if raw_size and compressed <= padded else padded, raw_size)
            position = stored + padded


def _next_fatbin(read: Read, start: int, end: int) -> int | None:
    """Return where the next fatbin begins, which is aligned as its header is."""
    for at in range(start, end, _STEP):
        piece = read(at, min(_STEP + _HEADER.size, end - at))
        found = piece.find(_MAGIC)
        while found >= 0:
            if found % _ALIGNED == 0 and found < _STEP and at + found + _HEADER.size <= end:
                return at + found
            found = piece.find(_MAGIC, found + 1)
    return None


def _read_entry(read: Read, entry: Entry, code: DeviceCode, budget: int) -> int:
    code.entries += 1
    if entry.raw_size > min(_MAX_IMAGE, budget):
        code.unreadable += 1
        return budget
    stored = read(entry.offset, entry.size)
    try:
        image = decompress(stored, entry.raw_size) if entry.raw_size else stored
    except FatbinError:
        code.unreadable += 1
        return budget - entry.raw_size
    _read_image(entry.kind, image, code)
    return budget - entry.raw_size


def decompress(stored: bytes, raw_size: int) -> bytes:
    """Undo an entry's compression; FatbinError where the data is not what it claims to be."""
    import lz4.block
    import zstandard

    try:
        if stored[:4] == _ZSTD_MAGIC:
            # The library believes the frame's own size before it believes max_output_size.
            if zstandard.get_frame_parameters(stored).content_size not in (raw_size, zstandard.CONTENTSIZE_UNKNOWN):
                raise FatbinError("device code cannot be decompressed: its size is not what the fatbin says")
            return zstandard.ZstdDecompressor().decompress(stored, max_output_size=raw_size)
        return bytes(lz4.block.decompress(stored, uncompressed_size=raw_size))
    except (zstandard.ZstdError, lz4.block.LZ4BlockError, ValueError, MemoryError) as error:
        raise FatbinError(f"device code cannot be decompressed: {error}") from error


def _read_image(kind: int, image: bytes, code: DeviceCode) -> None:
    if kind == _PTX:
        code.add(match[1] for match in _PTX_KERNEL.finditer(image))
        return
    try:
        code.add(_cubin_kernels(image))
    except (FatbinError, ElfError):
        code.unreadable += 1


def _cubin_kernels(image: bytes) -> Iterator[bytes]:
    """Yield the kernels of a cubin."""
    elf = ElfFile.from_bytes(image, "<cubin>")
    if elf.machine != CUBIN_MACHINE:
        raise FatbinError(f"machine {elf.machine} is no GPU")
    yield from kernels_in_sections(_section_names(elf))


def kernels_in_sections(names: Collection[bytes]) -> Iterator[bytes]:
    """Yield the kernels of a cubin by its sections: what has code and parameters, which plain device functions lack."""
    code = {name[len(_CUBIN_CODE) :] for name in names if name.startswith(_CUBIN_CODE)}
    yield from (
        name[len(_CUBIN_KERNEL) :]
        for name in names
        if name.startswith(_CUBIN_KERNEL) and name[len(_CUBIN_KERNEL) :] in code
    )


def _section_names(elf: ElfFile) -> list[bytes]:
    # The name table alone says which sections there are; ElfFile's own names are cut and decoded.
    index: int = struct.unpack("<H", elf.read(62, 2))[0]
    sections = elf.sections
    if index >= len(sections):
        raise FatbinError("the cubin has no section names")
    table = elf.section_data(sections[index])
    return table.split(b"\0")
