"""Where does a thread have this thread-local variable? ELF's access models, as the dynamic linker has set them up (x86-64).

glibc only: how musl numbers its blocks is not looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from ..errors import ElfError
from ..signals.structs import Frozen
from .elf import SHT_DYNSYM, ElfFile, Symbol
from .memory import Memory

STT_TLS = 6
_PT_TLS, _PT_INTERP, _PT_DYNAMIC = 7, 3, 2
_DTPMOD64, _TPOFF64, _TLSDESC = 16, 18, 36
_PHDR = struct.Struct("<IIQQQQQQ")
_RELA = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_SYM = struct.Struct("<IBBHQQ")
_MAX_HEADERS, _MAX_RELOCATIONS, _MAX_CHAIN = 256, 64 << 20, 4096
_MAX_MODULE = 1 << 20
_MAX_STATIC = 1 << 30
_HEADER = 64


class ThreadLocal(Frozen):
    """Where it is: at the thread pointer and `offset`; or, with a `module`, at `offset` in the module's block."""

    offset: int
    module: int = 0


def find_exported(elf: ElfFile, name: str) -> tuple[int, Symbol] | None:
    """Return a symbol that a file exports, and its number in `.dynsym`, by the table that the dynamic linker looks into."""
    dynsym = next((s for s in elf.sections if s.type == SHT_DYNSYM), None)
    table = elf.section(".gnu.hash")
    if dynsym is None or dynsym.link >= len(elf.sections):
        return None
    strings = elf.sections[dynsym.link]
    wanted = name.encode() + b"\0"
    numbers = range(dynsym.size // _SYM.size) if table is None else _candidates(elf, table.offset, table.size, name)
    for number in numbers:
        if (number + 1) * _SYM.size > dynsym.size:
            return None
        at, info, _, section, value, size = _SYM.unpack(elf.read(dynsym.offset + number * _SYM.size, _SYM.size))
        if section and at < strings.size and elf.peek(strings.offset + at, len(wanted)) == wanted:
            return number, Symbol(name, value, size, info & 15, info >> 4 != 0, section)
    return None


def _candidates(elf: ElfFile, table: int, size: int, name: str) -> Iterator[int]:
    """Yield the numbers of the symbols that have the name's hash: `.gnu.hash`, by its filter, bucket and chain."""
    buckets, first, words, shift = struct.unpack("<4I", elf.read(table, 16))
    if not buckets or not words or 16 + 8 * words + 4 * buckets > size:
        return
    value = 5381
    for letter in name.encode():
        value = value * 33 + letter & 0xFFFFFFFF
    word = struct.unpack("<Q", elf.read(table + 16 + 8 * (value // 64 % words), 8))[0]
    if not (word >> (value % 64) & 1 and word >> ((value >> (shift & 31)) % 64) & 1):
        return
    at_buckets = table + 16 + 8 * words
    number = struct.unpack("<I", elf.read(at_buckets + 4 * (value % buckets), 4))[0]
    if number < first:
        return
    chain = at_buckets + 4 * buckets
    for _ in range(_MAX_CHAIN):
        at = chain + 4 * (number - first)
        if at + 4 > table + size:
            return
        found = struct.unpack("<I", elf.read(at, 4))[0]
        if found | 1 == value | 1:
            yield number
        if found & 1:
            return
        number += 1


def place_of(elf: ElfFile, bias: int, number: int, symbol: Symbol, memory: Memory) -> ThreadLocal | None:
    """Return where threads of a process have a variable; None where it cannot be told. `bias` is its addresses' minus the file's."""
    for row in _relocations(elf):
        kind, target, addend = int(row["type"]), int(row["symbol"]), int(row["addend"])
        is_its_own = target == number or (target == 0 and kind != _DTPMOD64 and addend == symbol.value)
        if not is_its_own and not (kind == _DTPMOD64 and target == 0):
            continue
        first, second = struct.unpack("<qq", memory.read(int(row["offset"]) + bias, 16))
        found = _decode(kind, first, second, symbol.value, memory)
        if found is not None:
            return found
    return _in_executable(elf, symbol)


def _decode(kind: int, first: int, second: int, value: int, memory: Memory) -> ThreadLocal | None:
    if kind == _TPOFF64:
        return _static(first)
    if kind == _DTPMOD64:
        return ThreadLocal(value, first) if 0 < first < _MAX_MODULE else None
    if kind == _TLSDESC:
        if (found := _static(second)) is not None:
            return found
        if second > 0:
            # What glibc's descriptor for blocks that come later points to: {module, offset}, and a generation.
            module, offset = struct.unpack("<QQ", memory.read(second, 16))
            return ThreadLocal(offset, module) if 0 < module < _MAX_MODULE and offset < _MAX_STATIC else None
    return None


def _static(offset: int) -> ThreadLocal | None:
    return ThreadLocal(offset) if -_MAX_STATIC < offset < 0 else None


def _in_executable(elf: ElfFile, symbol: Symbol) -> ThreadLocal | None:
    """Return where a program's own file has it: its block ends where the thread pointer points to."""
    header = elf.read(0, _HEADER)
    at, size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
    if size != _PHDR.size or count > _MAX_HEADERS:
        raise ElfError(f"{elf.path}: its program headers are not believable")
    headers = list(_PHDR.iter_unpack(elf.read(at, size * count)))
    kinds = {kind for kind, *_ in headers}
    if _PT_INTERP not in kinds and _PT_DYNAMIC in kinds:
        return None  # a library
    for kind, _, _, vaddr, _, _, memory, align in headers:
        if kind == _PT_TLS and symbol.value < memory < _MAX_STATIC and 0 < align < _MAX_STATIC and not vaddr % align:
            return ThreadLocal(symbol.value - -(-memory // align) * align)
    return None


def _relocations(elf: ElfFile) -> Iterator[np.void]:
    for name in (".rela.dyn", ".rela.plt"):
        section = elf.section(name)
        if section is None or section.size > _MAX_RELOCATIONS:
            continue
        data = elf.section_data(section)
        table = np.frombuffer(data[: len(data) // _RELA.itemsize * _RELA.itemsize], _RELA)
        yield from table[np.isin(table["type"], (_DTPMOD64, _TPOFF64, _TLSDESC))]
