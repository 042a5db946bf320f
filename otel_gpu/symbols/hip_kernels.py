"""What is the kernel called that a program launches by a host pointer, as hipLaunchKernel takes it?

clang gives each HIP kernel a host symbol whose address stands for it: since LLVM 13 a variable under the kernel's own
name, before that the function `__device_stub__NAME`. Both are in the symbol table of the file that holds the kernel.
Where that is stripped, the file and the place in it are all there is.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass

import numpy as np

from ..discovery import procfs
from ..discovery.libraries import loaded_size
from ..elf import PT_LOAD, SHT_NOBITS, ElfFile
from ..errors import ElfError, ProcessGoneError
from .kernels import Program

_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_STUB = "__device_stub__"
_MANGLED_STUB = re.compile(rf"(\d+){_STUB}")
_OBJECT, _FUNCTION = 1, 2
_MAX_NAME = 4096
_MAX_SYMBOLS = 256 << 20
"""Bytes of a symbol table; a larger one is not believed."""
_REREAD_S = 1.0
"""How often a program's files are looked up again while addresses turn up that are in none of them."""


@dataclass(frozen=True, slots=True)
class _Module:
    start: int
    """Where its address 0 lies in the process, plus its first address."""
    end: int
    bias: int
    opener: str
    name: str


class HostSymbols:
    """Names kernels by the files that the observed programs have mapped, which it remembers by program."""

    def __init__(self) -> None:
        self._modules: dict[Program, tuple[float, list[_Module]]] = {}

    def kernel(self, program: Program, address: int) -> str | None:
        """Return the kernel behind an address, or the file and the place in it; None outside of files."""
        module = self._module_of(program, address)
        if module is None:
            return None
        try:
            with ElfFile(module.opener) as elf:
                name = symbol_at(elf, address - module.bias)
        except (ElfError, OSError):
            name = None
        return kernel_of(name) if name else f"{module.name}+{address - module.bias:#x}"

    def forget(self, program: Program) -> None:
        """Drop a program that has ended."""
        self._modules.pop(program, None)

    def _module_of(self, program: Program, address: int) -> _Module | None:
        read_at, modules = self._modules.get(program, (-_REREAD_S, []))
        found = next((m for m in modules if m.start <= address < m.end), None)
        # Kernels of modules are launched by handles, which lie in no file however often one looks.
        if found is None and time.monotonic() - read_at >= _REREAD_S:
            modules = _modules(program[0])
            self._modules[program] = (time.monotonic(), modules)
            found = next((m for m in modules if m.start <= address < m.end), None)
        return found


def kernel_of(symbol: str) -> str:
    """Return a kernel's name by that of its host symbol, in the form it has: mangled or not."""
    if symbol.startswith(_STUB):
        return symbol.removeprefix(_STUB)
    return _MANGLED_STUB.sub(lambda length: str(int(length[1]) - len(_STUB)), symbol, count=1)


def symbol_at(elf: ElfFile, address: int) -> str | None:
    """Return the symbol of a variable or function that begins at a link-time address."""
    for table in (".symtab", ".dynsym"):
        section = elf.section(table)
        if section is None or section.type == SHT_NOBITS or section.link >= len(elf.sections):
            continue
        if section.size > _MAX_SYMBOLS:
            raise ElfError(f"{elf.path}: {table} of {section.size} bytes is not believable")
        symbols = np.frombuffer(
            elf.section_data(section)[: section.size // _SYMBOL.itemsize * _SYMBOL.itemsize], _SYMBOL
        )
        kind = symbols["info"] & 15
        found = (symbols["value"] == address) & (symbols["section"] != 0) & ((kind == _OBJECT) | (kind == _FUNCTION))
        strings = elf.sections[section.link]
        for at in symbols["name"][found].tolist():
            raw = elf.read(strings.offset + at, min(_MAX_NAME, max(strings.size - at, 0))).partition(b"\0")[0]
            if raw:
                return raw.partition(b"@")[0].decode("utf-8", "replace")
    return None


def _modules(pid: int) -> list[_Module]:
    """Return the files of a process that have code, each with all that it spans."""
    try:
        mappings = procfs.executable_mappings(pid)
    except (ProcessGoneError, PermissionError):
        return []
    found = []
    for mapping in mappings:
        opener = mapping.opener(pid)
        if not os.path.exists(opener):
            opener = f"/proc/{pid}/root{mapping.path}"
        try:
            with ElfFile(opener) as elf:
                bias = mapping.start - elf.code_vaddr(mapping.offset)
                first = min((s.vaddr for s in elf.segments if s.type == PT_LOAD), default=0)
                found.append(
                    _Module(bias + first, bias + first + loaded_size(elf), bias, opener, os.path.basename(mapping.path))
                )
        except (ElfError, OSError):
            continue
    return found
