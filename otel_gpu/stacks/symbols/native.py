"""Which functions does a file have, and what are they called? Read from its symbol tables by a process without rights.

Names come from `.symtab`, else from the debug file or the compressed `.gnu_debugdata`, and always from `.dynsym`.
"""

from __future__ import annotations

import lzma

import numpy as np
import numpy.typing as npt

from ...errors import ElfError
from ...sandbox.elf import PF_X, PT_LOAD, SHT_NOBITS, STT_FUNC, STT_GNU_IFUNC, ElfFile
from .function_index import FUNCTION, FunctionIndex, NamePlace, base_of, is_in

_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_READ = np.dtype([("value", "<u4"), ("size", "<u4"), ("name", "<u4"), ("table", "u1"), ("rank", "u1")])
"""While they are read; `value` counts from the beginning of the code."""
_MAX_TABLE = 512 << 20
_MAX_FUNCTIONS = 2 << 20
"""Of one file, which take 26 MB; the largest libraries have half a million."""
_MAX_DEBUGDATA = 64 << 20
_MAX_NAME = 4096
_STT_NOTYPE = 0
_LABEL = 2
"""The rank of symbols without a type; global functions have 0, weak and local ones 1."""
_BLOCK = 1 << 16
"""Symbols read at a time: bounds the memory, as most symbols of a big table may be no functions."""
_OWN, _SPLIT_OFF, _PACKED, _DYNAMIC = range(4)
"""The tables, in the order in which their names are preferred."""


class NativeSymbols:
    """The functions of one ELF file."""

    def __init__(self, elf: ElfFile, debug: ElfFile | None = None) -> None:
        """Take names from `debug`, too: the file with the symbols that were split off."""
        self._elf = elf
        self._debug = debug
        self._packed: ElfFile | None = None
        self._strings: dict[int, tuple[ElfFile, int, int]] = {}
        self._code = tuple(
            (s.vaddr, s.vaddr + s.mem_size) for s in elf.segments if s.type == PT_LOAD and s.flags & PF_X and s.mem_size
        )
        self._base = np.uint64(base_of(self._code))
        self._failures: list[str] = []

    def index(self) -> FunctionIndex:
        """Read the tables."""
        found = [self._read(_OWN)]
        if not found[0].size:
            found += [self._read(_SPLIT_OFF), self._read(_PACKED)]
        found.append(self._read(_DYNAMIC))
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
        functions = self._largest(functions[keep])
        kept = np.empty(functions.size, FUNCTION)
        for column in ("size", "name", "table"):
            kept[column] = functions[column]
        # The addresses apart, as a search wants them side by side.
        return FunctionIndex(self._code, functions["value"].tobytes(), kept.tobytes(), self._failures)

    def has_own_table(self) -> bool:
        """Tell whether no symbols were split off."""
        try:
            section = self._elf.section(".symtab")
        except ElfError:
            return True
        return section is not None and section.type != SHT_NOBITS

    def name(self, place: NamePlace) -> str:
        """Read a name, as the file has it (mangled); empty where there is none."""
        try:
            elf, strings, size = self._strings_of(place.table)
            if not 0 <= place.offset < size:
                return ""
            raw = elf.peek(strings + place.offset, min(size - place.offset, _MAX_NAME))
        except ElfError:
            return ""
        # Static symbol tables append the version: memcpy@@GLIBC_2.14.
        return raw.partition(b"\0")[0].partition(b"@")[0].decode("utf-8", "replace")

    def _largest(self, functions: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """Leave out the smallest functions where there are too many."""
        if functions.size <= _MAX_FUNCTIONS:
            return functions
        self._failures.append(f"{self._elf.path}: of {functions.size} functions the {_MAX_FUNCTIONS} largest are kept")
        largest = np.argpartition(functions["size"], functions.size - _MAX_FUNCTIONS)[-_MAX_FUNCTIONS:]
        return functions[np.sort(largest)]

    def _file_of(self, table: int) -> tuple[ElfFile | None, str]:
        match table:
            case 1:
                return self._debug, ".symtab"
            case 2:
                return self._debug_data(), ".symtab"
            case 3:
                return self._elf, ".dynsym"
            case _:
                return self._elf, ".symtab"

    def _strings_of(self, table: int) -> tuple[ElfFile, int, int]:
        if table not in self._strings:
            elf, name = self._file_of(table)
            section = elf.section(name) if elf is not None else None
            if elf is None or section is None or section.link >= len(elf.sections):
                raise ElfError(f"{self._elf.path} has no table {table}")
            strings = elf.sections[section.link]
            self._strings[table] = elf, strings.offset, strings.size
        return self._strings[table]

    def _debug_data(self) -> ElfFile | None:
        """Unpack the small symbol table that Fedora and others leave in stripped files."""
        if self._packed is not None:
            return self._packed
        try:
            section = self._elf.section(".gnu_debugdata")
            if section is None or section.type == SHT_NOBITS:
                return None
            decoder = lzma.LZMADecompressor(memlimit=256 << 20)
            data = decoder.decompress(self._elf.section_data(section), max_length=_MAX_DEBUGDATA)
            if not decoder.eof:
                raise ElfError(f"{self._elf.path}: .gnu_debugdata holds more than {_MAX_DEBUGDATA} bytes or is cut off")
            self._packed = ElfFile.from_bytes(data, f"{self._elf.path}[.gnu_debugdata]")
        except (lzma.LZMAError, ElfError) as e:
            self._failures.append(f"{self._elf.path}: .gnu_debugdata: {e}")
        return self._packed

    def _read(self, table: int) -> npt.NDArray[np.void]:
        """Return a table's functions, unsorted; empty where it is missing or cannot be read."""
        nothing = np.empty(0, _READ)
        elf, name = self._file_of(table)
        try:
            section = elf.section(name) if elf is not None else None
            if elf is None or section is None or section.type == SHT_NOBITS:
                return nothing
            if section.link >= len(elf.sections) or section.size > _MAX_TABLE:
                raise ElfError(f"{elf.path}: {name} of {section.size} bytes is not believable")
            number = section.size // _SYMBOL.itemsize
            blocks = [self._select(elf, section.offset, n, number) for n in range(0, number, _BLOCK)]
        except ElfError as e:
            self._failures.append(str(e))
            return nothing
        functions = np.concatenate([nothing, *blocks])
        functions["table"] = table
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
        wanted &= is_in(self._code, symbols["value"])
        kept = symbols[wanted]
        functions = np.zeros(kept.size, _READ)
        functions["value"], functions["name"] = kept["value"] - self._base, kept["name"]
        functions["size"] = np.minimum(kept["size"], 0xFFFFFFFF)
        functions["rank"] = np.where(is_label[wanted], _LABEL, np.where(binding[wanted] == 1, 0, 1))
        return functions


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
