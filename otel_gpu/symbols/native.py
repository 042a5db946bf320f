"""Which function of a file holds this address?

Names come from `.symtab`, else from the debug file or the compressed `.gnu_debugdata`, and always from `.dynsym`.
Addresses and sizes are kept in sorted arrays, 13 bytes a function; a name is read from the file when it is asked for.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..elf import PF_X, PT_LOAD, SHT_NOBITS, STT_FUNC, STT_GNU_IFUNC, ElfFile
from ..errors import ElfError
from ..heap import trim
from .debuglink import DEBUG_ROOTS, find_debug_file

_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_FUNCTION = np.dtype([("value", "<u4"), ("size", "<u4"), ("name", "<u4"), ("table", "u1"), ("rank", "u1")])
"""While they are read; `value` counts from the beginning of the code."""
_KEPT = np.dtype([("size", "<u4"), ("name", "<u4"), ("table", "u1")])
_MAX_TABLE = 512 << 20
_MAX_DEBUGDATA = 64 << 20
_MAX_NAME = 4096
_STT_NOTYPE = 0
_LABEL = 2
"""The rank of symbols without a type; global functions have 0, weak and local ones 1."""
_MAX_SPAN = 1 << 32
"""Code further from its file's first is none that a loader could place."""
_BLOCK = 1 << 16
"""Symbols read at a time: bounds the memory, as most symbols of a big table may be no functions."""
_MANY = 1 << 16
"""Functions of a file whose sorting is worth giving memory back after."""
_NESTED = 4
"""How many symbols back the one that encloses an address is searched for."""


class NativeSymbol(NamedTuple):
    """A function's name as the file has it (mangled), and how far into it the address lies."""

    name: str
    offset: int


class _Table(NamedTuple):
    """A symbol table's names: where they are, in which file."""

    elf: ElfFile
    strings: int
    size: int


class NativeSymbols:
    """The functions of one ELF file. Owns the file: use as a context manager, or close it."""

    def __init__(self, elf: ElfFile, debug_roots: Sequence[str] = DEBUG_ROOTS) -> None:
        self._elf = elf
        self._debug_roots = debug_roots
        self._files: list[ElfFile] = [elf]
        self._tables: list[_Table] = []
        self._code = [
            (s.vaddr, s.vaddr + s.mem_size) for s in elf.segments if s.type == PT_LOAD and s.flags & PF_X and s.mem_size
        ]
        self._base = np.uint64(min((start for start, _ in self._code), default=0))
        self._loaded: tuple[npt.NDArray[np.uint32], npt.NDArray[np.void]] | None = None
        self.failures: list[str] = []
        """Why a source of names could not be read; the others are used all the same."""

    def __enter__(self) -> NativeSymbols:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; idempotent. What was resolved stays valid."""
        for elf in self._files:
            elf.close()

    def __len__(self) -> int:
        return int(self._functions()[0].size)

    def resolve(self, address: int) -> NativeSymbol | None:
        """Name one link-time address."""
        return self.resolve_all((address,))[0]

    def resolve_all(self, addresses: Iterable[int]) -> list[NativeSymbol | None]:
        """Name many link-time addresses; None for those that are in no known function."""
        starts, functions = self._functions()
        asked = np.fromiter(addresses, np.uint64)
        if not functions.size:
            return [None] * asked.size
        in_code = self._in_code(asked)
        wanted = np.where(in_code, asked - self._base, 0).astype(np.uint32)
        at = np.searchsorted(starts, wanted, side="right").astype(np.int64) - 1
        chosen = np.full(wanted.size, -1, np.int64)
        for back in range(_NESTED):
            n = np.maximum(at - back, 0)
            offset = wanted - starts[n]
            size = functions["size"][n]
            # Hand-written code may state no size: such a symbol reaches to the next one, or to the end of the code.
            holds = (offset < size) | ((size == 0) & (back == 0))
            chosen = np.where((chosen < 0) & (at - back >= 0) & holds & in_code, n, chosen)
        return [
            None if n < 0 else NativeSymbol(self._name(functions[n]), relative - int(starts[n]))
            for n, relative in zip(chosen.tolist(), wanted.tolist(), strict=True)
        ]

    def _name(self, function: np.void) -> str:
        table = self._tables[int(function["table"])]
        start = int(function["name"])
        if start >= table.size:
            return ""
        raw = table.elf.peek(table.strings + start, min(table.size - start, _MAX_NAME))
        # Static symbol tables append the version: memcpy@@GLIBC_2.14.
        return raw.partition(b"\0")[0].partition(b"@")[0].decode("utf-8", "replace")

    def _functions(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.void]]:
        if self._loaded is None:
            functions = self._load()
            kept = np.empty(functions.size, _KEPT)
            for column in ("size", "name", "table"):
                kept[column] = functions[column]
            # The addresses apart, as a search wants them side by side.
            self._loaded = np.ascontiguousarray(functions["value"]), kept
            if functions.size > _MANY:
                del functions
                trim()
        return self._loaded

    def _load(self) -> npt.NDArray[np.void]:
        found = [self._read(self._elf, ".symtab")]
        if not found[0].size:
            for source in (self._debug_file, self._debug_data):
                elf = source()
                if elf is not None:
                    self._files.append(elf)
                    found.append(self._read(elf, ".symtab"))
        found.append(self._read(self._elf, ".dynsym"))
        functions = np.concatenate(found)
        # The best name of an address first: a global function before a weak or local one before a label, then one
        # that has a size, then the table read first.
        key = functions["value"].astype(np.uint64) << np.uint64(16)
        key |= functions["rank"].astype(np.uint64) << np.uint64(12)
        key |= (functions["size"] == 0).astype(np.uint64) << np.uint64(8)
        key |= functions["table"]
        functions = functions[np.argsort(key)]
        keep = np.ones(functions.size, bool)
        keep[1:] = functions["value"][1:] != functions["value"][:-1]
        return functions[keep]

    def _debug_file(self) -> ElfFile | None:
        try:
            path = find_debug_file(self._elf, self._debug_roots)
            return ElfFile(path) if path is not None else None
        except (OSError, ElfError) as e:
            self.failures.append(str(e))
            return None

    def _debug_data(self) -> ElfFile | None:
        """Unpack the small symbol table that Fedora and others leave in stripped files."""
        try:
            section = self._elf.section(".gnu_debugdata")
            if section is None or section.type == SHT_NOBITS:
                return None
            decoder = lzma.LZMADecompressor(memlimit=256 << 20)
            data = decoder.decompress(self._elf.section_data(section), max_length=_MAX_DEBUGDATA)
            if not decoder.eof:
                raise ElfError(f"{self._elf.path}: .gnu_debugdata holds more than {_MAX_DEBUGDATA} bytes or is cut off")
            return ElfFile.from_bytes(data, f"{self._elf.path}[.gnu_debugdata]")
        except (lzma.LZMAError, ElfError) as e:
            self.failures.append(f"{self._elf.path}: .gnu_debugdata: {e}")
            return None

    def _read(self, elf: ElfFile, name: str) -> npt.NDArray[np.void]:
        """Return a table's functions, unsorted; empty where it is missing or cannot be read."""
        nothing = np.empty(0, _FUNCTION)
        try:
            section = elf.section(name)
            if section is None or section.type == SHT_NOBITS:
                return nothing
            if section.link >= len(elf.sections) or section.size > _MAX_TABLE:
                raise ElfError(f"{elf.path}: {name} of {section.size} bytes is not believable")
            strings = elf.sections[section.link]
            number = section.size // _SYMBOL.itemsize
            blocks = [self._select(elf, section.offset, n, number) for n in range(0, number, _BLOCK)]
        except ElfError as e:
            self.failures.append(str(e))
            return nothing
        functions = np.concatenate([nothing, *blocks])
        functions["table"] = len(self._tables)
        self._tables.append(_Table(elf, strings.offset, strings.size))
        return _without_inner_labels(functions)

    def _select(self, elf: ElfFile, offset: int, first: int, number: int) -> npt.NDArray[np.void]:
        """Read a block of symbols, of which the functions stay."""
        count = min(_BLOCK, number - first)
        begin, size = offset + first * _SYMBOL.itemsize, count * _SYMBOL.itemsize
        symbols = np.frombuffer(elf.read(begin, size), _SYMBOL)
        kind, binding = symbols["info"] & 15, symbols["info"] >> 4
        is_function = (kind == STT_FUNC) | (kind == STT_GNU_IFUNC)
        # Entry points written in assembly have no type; local labels of that kind are no functions.
        is_label = (kind == _STT_NOTYPE) & (binding != 0)
        wanted = (is_function | is_label) & (symbols["section"] != 0) & (symbols["value"] != 0) & (symbols["name"] != 0)
        wanted &= self._in_code(symbols["value"])
        kept = symbols[wanted]
        functions = np.zeros(kept.size, _FUNCTION)
        functions["value"], functions["name"] = kept["value"] - self._base, kept["name"]
        functions["size"] = np.minimum(kept["size"], 0xFFFFFFFF)
        functions["rank"] = np.where(is_label[wanted], _LABEL, np.where(binding[wanted] == 1, 0, 1))
        return functions

    def _in_code(self, values: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        inside = np.zeros(values.size, bool)
        for start, end in self._code:
            inside |= (values >= start) & (values < end)
        inside &= values - self._base < _MAX_SPAN
        return inside


def _without_inner_labels(functions: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Leave out labels that stand inside a function: the function's name is the one to show."""
    is_label = functions["rank"] == _LABEL
    real = functions[~is_label]
    if not is_label.any() or not real.size:
        return functions
    order = np.argsort(real["value"])
    starts, sizes = real["value"][order], real["size"][order]
    labels = functions[is_label]
    at = np.searchsorted(starts, labels["value"], side="right").astype(np.int64) - 1
    before = np.maximum(at, 0)
    inner = (at >= 0) & (labels["value"] - starts[before] < sizes[before])
    return np.concatenate([real, labels[~inner]])
