"""What is this file to us? A CUDA driver, a CUDA or HIP runtime, a program with a static runtime, or nothing.

Files are told by what they export, through the hash table that the dynamic linker itself uses, so that a
renamed copy is recognised and a library of thousands of symbols costs a few reads. Answers are kept by file.
"""

from __future__ import annotations

import enum
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from ..elf import PT_DYNAMIC, PT_LOAD, ElfFile
from ..errors import ElfError

_DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH, _DT_HASH = 5, 6, 0x6FFFFEF5, 4
_MAX_CHAIN = 4096


class LibraryKind(enum.Enum):
    """What a file is to us."""

    DRIVER = "CUDA driver"
    RUNTIME = "CUDA runtime"
    STATIC_RUNTIME = "static CUDA runtime"
    HIP = "HIP runtime"


_EXPORTS = (
    (LibraryKind.DRIVER, ("cuInit", "cuLaunchKernel", "cuCtxSynchronize")),
    (LibraryKind.RUNTIME, ("cudaLaunchKernel", "cudaMalloc")),
    (LibraryKind.HIP, ("hipLaunchKernel", "hipModuleLaunchKernel", "hipMalloc")),
)
_FATBIN_SECTIONS = (".nv_fatbin", ".nvFatBinSegment", "__nv_relfatbin")


@dataclass(frozen=True, slots=True)
class FileId:
    """Which file, however it was reached: the same through bind mounts and overlays of one layer."""

    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileId:
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Library:
    """A file of interest."""

    id: FileId
    kind: LibraryKind
    path: str
    """As the process that showed it to us sees it."""
    build_id: str | None


def classify(opener: str, path: str) -> Library | None:
    """Say what the file behind `opener` is; None for files of no interest and for what is no ELF file."""
    try:
        with ElfFile(opener) as elf:
            kind = _kind(elf)
            if kind is None:
                return None
            return Library(FileId.of(elf.stat), kind, path, elf.build_id())
    except (ElfError, struct.error):
        return None


def _kind(elf: ElfFile) -> LibraryKind | None:
    for kind, names in _EXPORTS:
        if exports(elf, names):
            return kind
    if any(elf.section(name) is not None for name in _FATBIN_SECTIONS):
        return LibraryKind.STATIC_RUNTIME
    return None


def exports(elf: ElfFile, names: Iterable[str]) -> bool:
    """Say whether a file defines all of these dynamic symbols, by its GNU or System V hash table."""
    dynamic = _dynamic(elf)
    if dynamic is None or not {_DT_STRTAB, _DT_SYMTAB} <= dynamic.keys():
        return False
    if _DT_GNU_HASH in dynamic:
        return all(_gnu_lookup(elf, dynamic, name.encode()) for name in names)
    if _DT_HASH in dynamic:
        return all(_sysv_lookup(elf, dynamic, name.encode()) for name in names)
    return False


def _dynamic(elf: ElfFile) -> dict[int, int] | None:
    for s in elf.segments:
        if s.type == PT_DYNAMIC:
            data = elf.read(s.offset, min(s.file_size, 1 << 16) // 16 * 16)
            return dict(struct.iter_unpack("<QQ", data))
    return None


def _is(elf: ElfFile, dynamic: dict[int, int], index: int, name: bytes) -> bool:
    at, _info, _other, section, _value, _size = struct.unpack(
        "<IBBHQQ", elf.read_vaddr(dynamic[_DT_SYMTAB] + 24 * index, 24)
    )
    return section != 0 and elf.read_vaddr(dynamic[_DT_STRTAB] + at, len(name) + 1) == name + b"\0"


def _gnu_lookup(elf: ElfFile, dynamic: dict[int, int], name: bytes) -> bool:
    table = dynamic[_DT_GNU_HASH]
    buckets, first, bloom, shift = struct.unpack("<IIII", elf.read_vaddr(table, 16))
    if not buckets or not bloom:
        return False
    value = 5381
    for c in name:
        value = (value * 33 + c) & 0xFFFFFFFF
    (word,) = struct.unpack("<Q", elf.read_vaddr(table + 16 + 8 * (value // 64 % bloom), 8))
    if not word >> value % 64 & word >> (value >> shift) % 64 & 1:
        return False
    base = table + 16 + 8 * bloom
    (index,) = struct.unpack("<I", elf.read_vaddr(base + 4 * (value % buckets), 4))
    if index < first:
        return False
    for _ in range(_MAX_CHAIN):
        (entry,) = struct.unpack("<I", elf.read_vaddr(base + 4 * buckets + 4 * (index - first), 4))
        if entry | 1 == value | 1 and _is(elf, dynamic, index, name):
            return True
        if entry & 1:
            return False
        index += 1
    return False


def _sysv_lookup(elf: ElfFile, dynamic: dict[int, int], name: bytes) -> bool:
    table = dynamic[_DT_HASH]
    buckets, chains = struct.unpack("<II", elf.read_vaddr(table, 8))
    if not buckets:
        return False
    value = 0
    for c in name:
        value = (value << 4) + c
        value = (value ^ (value & 0xF0000000) >> 24) & 0x0FFFFFFF
    (index,) = struct.unpack("<I", elf.read_vaddr(table + 8 + 4 * (value % buckets), 4))
    for _ in range(_MAX_CHAIN):
        if not 0 < index < chains:
            return False
        if _is(elf, dynamic, index, name):
            return True
        (index,) = struct.unpack("<I", elf.read_vaddr(table + 8 + 4 * (buckets + index), 4))
    return False


class LibraryCatalogue:
    """Remembers what each mapped file is, by the device and inode that mappings show."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, int], int, str], Library | None] = {}

    def look_up(self, device: tuple[int, int], inode: int, path: str, openers: Iterable[str]) -> Library | None:
        """Say what a mapped file is, opening it by the first of `openers` that works if it is new."""
        key = (device, inode, path)
        if key in self._known:
            return self._known[key]
        for opener in openers:
            try:
                library = classify(opener, path)
            except OSError:
                continue
            self._known[key] = library
            return library
        return None


def loaded_size(elf: ElfFile) -> int:
    """Return how much address space the file's segments span, in bytes."""
    loads = [s for s in elf.segments if s.type == PT_LOAD]
    return max((s.vaddr + s.mem_size for s in loads), default=0) - min((s.vaddr for s in loads), default=0)
