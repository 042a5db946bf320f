"""What does this ELF file say? Bounded, lazy reading of files that may be hostile.

Only what is asked for is read, so that the 1 GB libraries of a training process cost little. Every offset is checked
against the file; anything absurd is an `ElfError`. 64-bit little-endian only: CUDA runs on nothing else.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol

from ..errors import ElfError
from ..signals.structs import Frozen
from .files import FileId

EM_X86_64 = 62
EM_AARCH64 = 183
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_TLS, PT_GNU_EH_FRAME = 1, 2, 3, 4, 7, 0x6474E550
PF_X, PF_W = 1, 2
SHT_SYMTAB, SHT_NOBITS, SHT_DYNSYM, SHT_NOTE, SHT_RELA = 2, 8, 11, 7, 4
STT_FUNC, STT_OBJECT, STT_GNU_IFUNC = 2, 1, 10

_MAX_SECTIONS = 65_536
_MAX_SEGMENTS = 4_096
_MAX_NAME = 4_096
_MAX_READ = 1 << 30
"""At once: what a file claims to hold, and a sparse one does."""
_MAX_SECTION_NAMES = 16 << 20
_MAX_NOTES = 1 << 18
"""Bytes of all segments of notes: several may be the same bytes again."""
_PAGE = 4_096
_PHDR = struct.Struct("<IIQQQQQQ")
_SHDR = struct.Struct("<IIQQQQIIQQ")
_SYM = struct.Struct("<IBBHQQ")
_DYN = struct.Struct("<QQ")
_MAX_DYNAMIC = 1 << 16
_HIDDEN_VERSION = 0x8000
"""Set in the version of a symbol that programs are not linked with any more."""


class Segment(Frozen):
    """A program header; addresses and sizes in bytes."""

    type: int
    flags: int
    offset: int
    vaddr: int
    file_size: int
    mem_size: int


class Section(Frozen):
    """A section header."""

    name: str
    type: int
    flags: int
    vaddr: int
    offset: int
    size: int
    link: int
    info: int
    entry_size: int


class Symbol(Frozen):
    """A defined symbol: `value` is its link-time address."""

    name: str
    value: int
    size: int
    type: int
    is_global: bool
    section: int = 0
    """Index of the section it is defined in."""


class Source(Protocol):
    """Where the bytes of a file come from."""

    @property
    def size(self) -> int: ...

    @property
    def id(self) -> FileId | None: ...

    def read(self, offset: int, size: int) -> bytes:
        """Return what stands at an offset, less where the file ends."""


class _Memory:
    """A file that is in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)
        self.id: FileId | None = None

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]


class _File:
    """A file that is open. It is read and never mapped: whoever shortens a mapped file ends who looks into it."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise ElfError(f"{path}: not a regular file, so it is no ELF file")
        self.size = status.st_size
        self.id = FileId.of(status)

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, offset)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class ElfFile:
    """One ELF file. Use as a context manager, or close it.

    A file of a stranger's is read in a child without rights (process/parser_child.py): what it claims of itself costs time
    and memory, within the child's limits.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open `path`; raises ElfError for what is no 64-bit little-endian ELF file, OSError if unreadable."""
        self._file: _File | None = _File(os.fspath(path))
        try:
            self._begin(self._file, os.fspath(path))
        except Exception:
            self.close()
            raise

    @classmethod
    def of(cls, source: Source, path: str) -> ElfFile:
        """Read a file that somebody else has opened, and closes."""
        self = cls.__new__(cls)
        self._file = None
        self._begin(source, path)
        return self

    @classmethod
    def from_bytes(cls, data: bytes, path: str = "<memory>") -> ElfFile:
        """Read an ELF image that is already in memory (a vDSO, a cubin)."""
        return cls.of(_Memory(data), path)

    def _begin(self, source: Source, path: str) -> None:
        self.path = path
        self._source = source
        self.size = source.size
        self.id = source.id
        self._sections: list[Section] | None = None
        self._by_name: dict[str, Section] = {}
        self._read_header()

    def __enter__(self) -> ElfFile:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file is not None:
            self._file.close()

    def _read_header(self) -> None:
        head = self.peek(0, 64)
        if len(head) < 64 or head[:4] != b"\x7fELF":
            raise ElfError(f"{self.path}: not an ELF file")
        if head[4] != 2 or head[5] != 1:
            raise ElfError(f"{self.path}: not a 64-bit little-endian ELF file")
        self.type, self.machine = struct.unpack_from("<HH", head, 16)
        self.entry, phoff, self._shoff = struct.unpack_from("<QQQ", head, 24)
        phentsize, phnum, self._shentsize, self._shnum, self._shstrndx = struct.unpack_from("<HHHHH", head, 54)
        if phnum > _MAX_SEGMENTS or (phnum and phentsize != _PHDR.size):
            raise ElfError(f"{self.path}: {phnum} program headers of {phentsize} bytes are not believable")
        table = self.read(phoff, phnum * _PHDR.size) if phnum else b""
        self.segments: tuple[Segment, ...] = tuple(
            Segment(t, fl, off, va, fsz, msz) for t, fl, off, va, _pa, fsz, msz, _al in _PHDR.iter_unpack(table)
        )

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes at a file offset; ElfError if they are not all there."""
        if not 0 <= offset <= offset + size <= self.size:
            raise ElfError(f"{self.path}: {size} bytes at offset {offset:#x} lie outside the file")
        if size > _MAX_READ:
            raise ElfError(f"{self.path}: {size} bytes at offset {offset:#x} are more than is read at once")
        data = self._source.read(offset, size)
        if len(data) != size:
            raise ElfError(f"{self.path}: the file was cut off while it was read")
        return data

    def dynamic(self) -> list[tuple[int, int]]:
        """Return the tags of the dynamic section and their values, in order; none where there is no such section."""
        for segment in self.segments:
            if segment.type == PT_DYNAMIC:
                data = self.read(segment.offset, min(segment.file_size, _MAX_DYNAMIC) // _DYN.size * _DYN.size)
                return list(_DYN.iter_unpack(data))
        return []

    def peek(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes at a file offset, less where the file ends."""
        return self._source.read(offset, max(min(size, self.size - offset, _MAX_READ), 0))

    def to_offset(self, vaddr: int) -> int:
        """Convert a link-time address into a file offset; ElfError where no segment holds it."""
        for s in self.segments:
            if s.type == PT_LOAD and s.vaddr <= vaddr < s.vaddr + s.file_size:
                return vaddr - s.vaddr + s.offset
        raise ElfError(f"{self.path}: address {vaddr:#x} is in no loaded segment")

    def to_vaddr(self, offset: int) -> int:
        """Convert a file offset into a link-time address; ElfError where no segment holds it."""
        for s in self.segments:
            if s.type == PT_LOAD and s.offset <= offset < s.offset + s.file_size:
                return offset - s.offset + s.vaddr
        raise ElfError(f"{self.path}: offset {offset:#x} is in no loaded segment")

    def code_vaddr(self, offset: int) -> int:
        """Convert the file offset at which an executable mapping begins; ElfError where no segment can be behind it.

        Mappings begin at whole pages, where segments need not: lld puts the end of one and the beginning of the next,
        which are mapped at different places, into the same page of the file.
        """
        for s in self.segments:
            if s.type == PT_LOAD and s.flags & PF_X and s.offset & -_PAGE <= offset < s.offset + s.file_size:
                return offset - s.offset + s.vaddr
        return self.to_vaddr(offset)

    def read_vaddr(self, vaddr: int, size: int) -> bytes:
        """Return `size` bytes at a link-time address."""
        return self.read(self.to_offset(vaddr), size)

    @property
    def sections(self) -> list[Section]:
        """All sections; empty where the file has no section table."""
        if self._sections is None:
            self._sections = self._read_sections()
            self._by_name = {}
            for s in self._sections:
                self._by_name.setdefault(s.name, s)
        return self._sections

    def section(self, name: str) -> Section | None:
        """Return the first section of that name."""
        _ = self.sections
        return self._by_name.get(name)

    def section_data(self, section: Section) -> bytes:
        """Return a section's bytes as stored."""
        return b"" if section.type == SHT_NOBITS else self.read(section.offset, section.size)

    def _read_sections(self) -> list[Section]:
        if not self._shoff:
            return []
        if self._shentsize != _SHDR.size:
            raise ElfError(f"{self.path}: section headers of {self._shentsize} bytes are not believable")
        number, strndx = self._shnum, self._shstrndx
        if number == 0 or strndx == 0xFFFF:
            first = _SHDR.unpack(self.read(self._shoff, _SHDR.size))
            number = number or first[5]
            strndx = first[6] if strndx == 0xFFFF else strndx
        if number > _MAX_SECTIONS:
            raise ElfError(f"{self.path}: {number} sections are not believable")
        raw = list(_SHDR.iter_unpack(self.read(self._shoff, number * _SHDR.size)))
        if strndx >= len(raw):
            raise ElfError(f"{self.path}: the section name table is missing")
        if raw[strndx][5] > _MAX_SECTION_NAMES:
            raise ElfError(f"{self.path}: section names of {raw[strndx][5]} bytes are not believable")
        names = self.read(raw[strndx][4], raw[strndx][5])
        return [
            Section(_name(names, n), t, fl, va, off, sz, link, info, ent)
            for n, t, fl, va, off, sz, link, info, _al, ent in raw
        ]

    def symbols(self, table: str = ".dynsym") -> Iterator[Symbol]:
        """Yield the defined symbols of `.dynsym` or `.symtab`; nothing where the table is missing."""
        strings, data = self._symbol_table(table)
        for name, info, _other, shndx, value, size in _SYM.iter_unpack(data):
            if shndx and name:
                yield Symbol(_name(strings, name), value, size, info & 15, info >> 4 != 0, shndx)

    def default_exports(self) -> Iterator[Symbol]:
        """Yield the exported symbols of which there is one version, and of those with several the default one."""
        strings, data = self._symbol_table(".dynsym")
        section = self.section(".gnu.version")
        versions = b"" if section is None else self.section_data(section)
        for number, (name, info, _other, shndx, value, size) in enumerate(_SYM.iter_unpack(data)):
            version = int.from_bytes(versions[2 * number : 2 * number + 2], "little")
            if shndx and name and not version & _HIDDEN_VERSION:
                yield Symbol(_name(strings, name), value, size, info & 15, info >> 4 != 0, shndx)

    def _symbol_table(self, table: str) -> tuple[bytes, bytes]:
        """Return names and whole entries of a table of symbols; nothing where it is missing."""
        section = self.section(table)
        if section is None or section.type == SHT_NOBITS:
            return b"", b""
        if section.link >= len(self.sections):
            raise ElfError(f"{self.path}: {table} names no string table")
        strings = self.section_data(self.sections[section.link])
        data = self.section_data(section)
        return strings, data[: len(data) - len(data) % _SYM.size]

    def build_id(self) -> str | None:
        """Return the GNU build id in hexadecimal."""
        left = _MAX_NOTES
        for s in self.segments:
            if s.type != PT_NOTE or s.file_size > left:
                continue
            left -= s.file_size
            data = self.read(s.offset, s.file_size)
            at = 0
            while at + 12 <= len(data):
                name_size, desc_size, kind = struct.unpack_from("<III", data, at)
                desc = at + 12 + (name_size + 3 & ~3)
                if kind == 3 and data[at + 12 : at + 16] == b"GNU\0" and 0 < desc_size <= 64:
                    return data[desc : desc + desc_size].hex() if desc + desc_size <= len(data) else None
                at = desc + (desc_size + 3 & ~3)
        return None


def _name(strings: bytes, at: int) -> str:
    if at >= len(strings):
        return ""
    end = strings.find(b"\0", at, at + _MAX_NAME)
    return strings[at : end if end >= 0 else at + _MAX_NAME].decode("utf-8", "replace")
