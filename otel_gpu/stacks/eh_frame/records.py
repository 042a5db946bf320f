"""Where are a file's call frame records, and what do their headers say?

`.eh_frame` is a chain of records: CIEs, which hold what many functions share, and FDEs, one for each range
of code. The chain is walked once; everything after that is done on arrays. Records that cannot be read are
counted by reason and left out: the file may be hostile.
"""

from __future__ import annotations

import struct
from collections import Counter

import numpy as np
import numpy.typing as npt

from ...errors import ElfError
from ...sandbox.elf import PF_X, PT_GNU_EH_FRAME, PT_LOAD, SHT_NOBITS, ElfFile
from ...signals.structs import Frozen
from .rows import UnwindError

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_MAX_SECTION = 256 << 20
_MAX_ADDRESS = 1 << 62
_MAX_FUNCTIONS = 4 << 20
"""Twelve times those of libtorch_cpu: bounds the memory that the walk takes."""
_MAX_CIES = 65_536
_MAX_TERMINATORS = 4_096
_MAX_ALIGNMENT = 64
_MAX_PROGRAM = 4 << 20
# Pointer encodings, LSB 5.0 "DWARF Extensions".
_PE_OMIT, _PE_INDIRECT, _PE_PCREL = 0xFF, 0x80, 0x10
_PE_SIZE = {0x00: 8, 0x02: 2, 0x03: 4, 0x04: 8, 0x0A: 2, 0x0B: 4, 0x0C: 8}


class Programs(Frozen):
    """Call frame programs to execute, in the section's order: one column per property, one element per record."""

    begin: Ints
    """Where the instructions begin and end, as offsets into the section."""
    end: Ints
    code_align: Ints
    data_align: Ints


class FrameRecords(Frozen):
    """The readable records of one section."""

    data: Bytes
    cies: Programs
    cie_signal: Bools
    functions: Programs
    function_cie: Ints
    """The element of `cies` that each function belongs to."""
    start: Ints
    """First link-time address of each function, and the first after it."""
    stop: Ints
    skipped: Counter[str]


class _Cie(Frozen):
    begin: int
    end: int
    code_align: int
    data_align: int
    encoding: int
    has_augmentation: bool
    is_signal: bool


def locate(elf: ElfFile) -> tuple[int, int, int]:
    """Return the file offset, size and link-time address of `.eh_frame`; UnwindError where there is none."""
    section = elf.section(".eh_frame")
    if section is not None and section.type != SHT_NOBITS:
        offset, size, vaddr = section.offset, section.size, section.vaddr
    else:
        vaddr = _from_header(elf)
        segment = next(
            (s for s in elf.segments if s.type == PT_LOAD and s.vaddr <= vaddr < s.vaddr + s.file_size), None
        )
        if segment is None:
            raise UnwindError(f"{elf.path}: its .eh_frame_hdr points outside the file")
        offset, size = elf.to_offset(vaddr), segment.vaddr + segment.file_size - vaddr
    if size > _MAX_SECTION or not 0 <= vaddr < _MAX_ADDRESS:
        raise UnwindError(f"{elf.path}: an .eh_frame of {size} bytes at {vaddr:#x} is not believable")
    if offset + size > elf.size:
        raise ElfError(f"{elf.path}: its .eh_frame lies outside the file")
    return offset, size, vaddr


def _from_header(elf: ElfFile) -> int:
    """Find the section through .eh_frame_hdr, which files without a section table still have."""
    for s in elf.segments:
        if s.type == PT_GNU_EH_FRAME:
            version, encoding, _count, _table, pointer = struct.unpack("<BBBBi", elf.read_vaddr(s.vaddr, 8))
            if version == 1 and encoding == 0x1B:
                return s.vaddr + 4 + int(pointer)
    raise UnwindError(f"{elf.path}: no .eh_frame; its frames can be walked by frame pointers only")


class FrameSection(Frozen):
    """An `.eh_frame` as it stands in the file."""

    raw: bytes
    vaddr: int

    @classmethod
    def of(cls, elf: ElfFile) -> FrameSection:
        """Read the section; UnwindError where there is none."""
        offset, size, vaddr = locate(elf)
        return cls(elf.read(offset, size), vaddr)


def read_records(elf: ElfFile, section: FrameSection | None = None, only: Ints | None = None) -> FrameRecords:
    """Read the headers of all records of the section, or only of those functions' that begin at these offsets in it."""
    section = section or FrameSection.of(elf)
    raw, vaddr = section.raw, section.vaddr
    skipped: Counter[str] = Counter()
    at, cie_at = _walk(raw, skipped) if only is None else _chosen(raw, only)
    data = np.frombuffer(raw, np.uint8)

    offsets, which = np.unique(cie_at, return_inverse=True)
    if offsets.size > _MAX_CIES:
        raise UnwindError(f"{elf.path}: {offsets.size} CIEs in .eh_frame are not believable")
    parsed = [_read_cie(raw, int(o)) for o in offsets]
    readable = np.array([c is not None for c in parsed], bool)
    skipped["its CIE cannot be read"] += int(np.count_nonzero(~readable[which])) if which.size else 0
    ordinal = np.cumsum(readable) - 1
    cies = [c for c in parsed if c is not None]
    if which.size:
        kept = readable[which]
        at, which = at[kept], ordinal[which[kept]]

    encoding = np.array([c.encoding for c in cies], np.int64)
    augmented = np.array([c.has_augmentation for c in cies], bool)
    length = _unsigned(data, at, 4)
    end = at + 4 + length
    start, stop, begin, good = _read_ranges(data, at, end, vaddr, encoding[which], augmented[which])
    skipped["its header cannot be read"] += int(np.count_nonzero(~good))
    in_code = np.zeros(at.size, bool)
    for s in elf.segments:
        if s.type == PT_LOAD and s.flags & PF_X:
            in_code |= (start >= s.vaddr) & (stop <= s.vaddr + s.mem_size)
    in_code &= start < stop
    skipped["it describes no code of this file"] += int(np.count_nonzero(good & ~in_code))
    small = end - begin <= _MAX_PROGRAM
    skipped["its program is not believably long"] += int(np.count_nonzero(good & in_code & ~small))
    good &= in_code & small
    which = which[good]
    code_align = np.array([c.code_align for c in cies], np.int64)
    data_align = np.array([c.data_align for c in cies], np.int64)
    return FrameRecords(
        data=data,
        cies=Programs(
            np.array([c.begin for c in cies], np.int64),
            np.array([c.end for c in cies], np.int64),
            code_align,
            data_align,
        ),
        cie_signal=np.array([c.is_signal for c in cies], bool),
        functions=Programs(begin[good], end[good], code_align[which], data_align[which]),
        function_cie=which,
        start=start[good],
        stop=stop[good],
        skipped=+skipped,
    )


def _chosen(raw: bytes, only: Ints) -> tuple[Ints, Ints]:
    """Return the offsets of those FDEs that are some, and of the CIEs they name."""
    at: list[int] = []
    cie_at: list[int] = []
    for p in np.sort(only).tolist():
        if not 0 <= p <= len(raw) - 8:
            continue
        length, pointer = struct.unpack_from("<II", raw, p)
        if pointer and 8 <= length < 0xFFFFFFF0 and p + 4 + length <= len(raw):
            at.append(p)
            cie_at.append(p + 4 - pointer)
    return np.array(at, np.int64), np.array(cie_at, np.int64)


def _walk(raw: bytes, skipped: Counter[str]) -> tuple[Ints, Ints]:
    """Return the offset of every FDE and of the CIE it names."""
    at: list[int] = []
    cie_at: list[int] = []
    header, size = struct.Struct("<II").unpack_from, len(raw)
    p = terminators = 0
    while p + 8 <= size:
        length, pointer = header(raw, p)
        if length == 0:
            # The linker may leave the terminators of its inputs in the middle; libgcc stops, readelf goes on.
            terminators += 1
            if terminators > _MAX_TERMINATORS:
                break
            p += 4
            continue
        if length >= 0xFFFFFFF0 or p + 4 + length > size:
            skipped["its length leads out of the section"] += 1
            break
        if pointer and length >= 8:
            at.append(p)
            cie_at.append(p + 4 - pointer)
            if len(at) > _MAX_FUNCTIONS:
                raise UnwindError(f"more than {_MAX_FUNCTIONS} functions in one .eh_frame are not believable")
        p += 4 + length
    return np.array(at, np.int64), np.array(cie_at, np.int64)


def _read_cie(raw: bytes, at: int) -> _Cie | None:
    try:
        if at < 0 or raw[at + 4 : at + 8] != b"\0\0\0\0":
            return None
        end = at + 4 + int.from_bytes(raw[at : at + 4], "little")
        if not at + 13 <= end <= len(raw) or raw[at + 8] not in (1, 3):
            return None
        record = memoryview(raw)[:end]
        name_end = raw.index(b"\0", at + 9, min(end, at + 9 + 16))
        augmentation = raw[at + 9 : name_end]
        code_align, p = _leb(record, name_end + 1)
        data_align, p = _leb(record, p, signed=True)
        return_column, p = (record[p], p + 1) if raw[at + 8] == 1 else _leb(record, p)
        if not 1 <= code_align <= _MAX_ALIGNMENT or not 1 <= abs(data_align) <= _MAX_ALIGNMENT or return_column != 16:
            return None
        encoding, is_signal, begin = 0, False, p
        if augmentation[:1] == b"z":
            length, p = _leb(record, p)
            begin = p + length
            for letter in augmentation[1:].decode("ascii"):
                if letter == "R":
                    encoding, p = record[p], p + 1
                elif letter == "L":
                    p += 1
                elif letter == "P":
                    p += 1 + _PE_SIZE[record[p] & 15]
                elif letter == "S":
                    is_signal = True
                elif letter != "B":
                    return None
        elif augmentation:
            return None
        if begin > end or end - begin > _MAX_PROGRAM:
            return None
        return _Cie(begin, end, code_align, data_align, encoding, augmentation[:1] == b"z", is_signal)
    except (IndexError, KeyError, ValueError):
        return None


def _leb(record: memoryview, p: int, *, signed: bool = False) -> tuple[int, int]:
    value = shift = 0
    while shift < 63:
        byte = record[p]
        p += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (value - (1 << shift) if signed and byte & 64 else value), p
    raise ValueError("a number of more than 63 bits")


def _unsigned(data: Bytes, at: Ints, size: int) -> Ints:
    """Gather little-endian numbers of up to 8 bytes; the caller has checked that they lie inside."""
    value = np.zeros(at.size, np.int64)
    for i in range(size):
        value |= data[at + i].astype(np.int64) << (8 * i)
    return value


def _read_ranges(
    data: Bytes, at: Ints, end: Ints, vaddr: int, encoding: Ints, augmented: Bools
) -> tuple[Ints, Ints, Ints, Bools]:
    """Decode each FDE's code range and where its instructions begin."""
    start, stop, begin = np.zeros_like(at), np.zeros_like(at), end.copy()
    good = np.zeros(at.size, bool)
    for value in np.unique(encoding).tolist():
        size = _PE_SIZE.get(value & 15)
        if value == _PE_OMIT or value & ~(_PE_PCREL | 15) or size is None:
            continue
        mine = np.flatnonzero((encoding == value) & (at + 8 + 2 * size <= end))
        where = at[mine] + 8
        first = _unsigned(data, where, size)
        if value & 8 and size < 8:
            first -= (first >> (8 * size - 1)) << (8 * size)
        if value & _PE_PCREL:
            first += where + vaddr
        count = _unsigned(data, where + size, size)
        start[mine], stop[mine] = first, first + count
        begin[mine] = where + 2 * size
        good[mine] = (first >= 0) & (count >= 0) & (first + count >= 0)
    good &= ~augmented | (begin < end)
    has = np.flatnonzero(good & augmented)
    # The augmentation's length: one byte, as its content is at most a pointer; more is refused.
    size_byte = data[begin[has]].astype(np.int64)
    begin[has] += 1 + size_byte
    good[has] &= (size_byte < 128) & (begin[has] <= end[has])
    return start, stop, begin, good
