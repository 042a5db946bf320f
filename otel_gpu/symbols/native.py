"""Which function of a file holds this address?

Names come from `.symtab`, else from the debug file or the compressed `.gnu_debugdata`, and always from `.dynsym`.
Addresses and sizes are kept in sorted arrays, 26 bytes a function; a name is read from the file when it is asked for.
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
from .debuglink import DEBUG_ROOTS, find_debug_file

_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_FUNCTION = np.dtype([("value", "<u8"), ("size", "<u4"), ("name", "<u4"), ("table", "u1"), ("rank", "u1")])
_MAX_TABLE = 512 << 20
_MAX_DEBUGDATA = 64 << 20
_MAX_NAME = 4096
_STT_NOTYPE = 0
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
        self._loaded: tuple[npt.NDArray[np.uint64], npt.NDArray[np.void]] | None = None
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
        wanted = np.fromiter(addresses, np.uint64)
        if not functions.size:
            return [None] * wanted.size
        at = np.searchsorted(starts, wanted, side="right").astype(np.int64) - 1
        chosen = np.full(wanted.size, -1, np.int64)
        in_code = self._in_code(wanted)
        for back in range(_NESTED):
            n = np.maximum(at - back, 0)
            offset = wanted - starts[n]
            size = functions["size"][n]
            # Hand-written code may state no size: such a symbol reaches to the next one, or to the end of the code.
            holds = (offset < size) | ((size == 0) & (back == 0))
            chosen = np.where((chosen < 0) & (at - back >= 0) & holds & in_code, n, chosen)
        return [
            None if n < 0 else NativeSymbol(self._name(functions[n]), address - int(starts[n]))
            for n, address in zip(chosen.tolist(), wanted.tolist(), strict=True)
        ]

    def _name(self, function: np.void) -> str:
        table = self._tables[int(function["table"])]
        start = int(function["name"])
        if start >= table.size:
            return ""
        raw = table.elf.data[table.strings + start : table.strings + min(table.size, start + _MAX_NAME)]
        # Static symbol tables append the version: memcpy@@GLIBC_2.14.
        return raw.partition(b"\0")[0].partition(b"@")[0].decode("utf-8", "replace")

    def _functions(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.void]]:
        if self._loaded is None:
            functions = self._load()
            # Apart, as a search wants them side by side.
            self._loaded = np.ascontiguousarray(functions["value"]), functions
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
        order = np.lexsort((functions["table"], functions["size"] == 0, functions["rank"], functions["value"]))
        functions = functions[order]
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
            data = elf.section_data(section)
        except ElfError as e:
            self.failures.append(str(e))
            return nothing
        symbols = np.frombuffer(data[: len(data) // _SYMBOL.itemsize * _SYMBOL.itemsize], _SYMBOL)
        kind, binding = symbols["info"] & 15, symbols["info"] >> 4
        is_function = (kind == STT_FUNC) | (kind == STT_GNU_IFUNC)
        # Entry points written in assembly have no type; local labels of that kind are no functions.
        is_label = (kind == _STT_NOTYPE) & (binding != 0) & self._in_code(symbols["value"])
        wanted = (is_function | is_label) & (symbols["section"] != 0) & (symbols["value"] != 0) & (symbols["name"] != 0)
        kept = symbols[wanted]
        functions = np.empty(kept.size, _FUNCTION)
        functions["value"], functions["name"] = kept["value"], kept["name"]
        functions["size"] = np.minimum(kept["size"], 0xFFFFFFFF)
        functions["table"] = len(self._tables)
        functions["rank"] = np.where(is_label[wanted], 2, np.where(binding[wanted] == 1, 0, 1))
        self._tables.append(_Table(elf, strings.offset, strings.size))
        return _without_inner_labels(functions)

    def _in_code(self, values: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        inside = np.zeros(values.size, bool)
        for s in self._elf.segments:
            if s.type == PT_LOAD and s.flags & PF_X:
                inside |= (values >= s.vaddr) & (values < s.vaddr + s.mem_size)
        return inside


def _without_inner_labels(functions: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Leave out labels that stand inside a function: the function's name is the one to show."""
    is_label = functions["rank"] == 2
    if not is_label.any():
        return functions
    real = np.sort(functions[~is_label], order="value")
    if not real.size:
        return functions
    at = np.searchsorted(real["value"], functions["value"], side="right").astype(np.int64) - 1
    before = real[np.maximum(at, 0)]
    inner = is_label & (at >= 0) & (functions["value"] - before["value"] < before["size"])
    return np.asarray(functions[~inner])
