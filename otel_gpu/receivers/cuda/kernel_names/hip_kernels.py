"""What is the kernel called that a program launches by a host pointer, as hipLaunchKernel takes it?

clang gives each HIP kernel a host symbol whose address stands for it: since LLVM 13 a variable under the kernel's own
name, before that the function `__device_stub__NAME`. Both are in the symbol table of the file that holds the kernel.
Where that is stripped, the file and the place in it are all there is.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from ....discovery.program_id import ProgramId
from ....errors import ElfError
from ....sandbox.batches import each
from ....sandbox.confinement import Limits
from ....sandbox.elf import SHT_NOBITS, ElfFile
from ....sandbox.parsers import Parsers
from ....sandbox.work import OpenFile, work
from ....signals.structs import Frozen
from .launches import Module

_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_STUB = "__device_stub__"
_MANGLED_STUB = re.compile(rf"(\d+){_STUB}")
_OBJECT, _FUNCTION = 1, 2
_MAX_NAME = 4096
_MAX_SYMBOLS = 256 << 20
"""Bytes of a symbol table; a larger one is not believed."""
_MAX_ALIASES = 16
"""Symbols of one address that are looked at."""
_READING = Limits(answer_s=10.0, cpu_s=20, memory_bytes=1 << 30, answer_bytes=32 << 20)


class HostPointer(Frozen):
    """A launch by a host pointer, or by a handle: where nothing is mapped there, it is one."""

    program: ProgramId
    handle: int


def kernels_at(parsers: Parsers, module: Module, addresses: Sequence[int]) -> dict[int, str]:
    """Return the kernels behind addresses in a file that is mapped, or the file and the places in it."""
    assert module.file is not None
    names: dict[int, str] = {}
    places = [address - module.bias for address in addresses]
    # By its path where the program has ended meanwhile.
    for file in (module.file, module.file.below(-1)):
        (outcome,) = each(parsers, host_symbols, [file], places, _READING)
        if outcome.answer is not None:
            names = outcome.answer
            break
    return {
        address: kernel_of(names[place]) if place in names else f"{module.name}+{place:#x}"
        for address, place in zip(addresses, places, strict=True)
    }


def kernel_of(symbol: str) -> str:
    """Return a kernel's name by that of its host symbol, in the form it has: mangled or not."""
    if symbol.startswith(_STUB):
        return symbol.removeprefix(_STUB)
    return _MANGLED_STUB.sub(lambda length: str(int(length[1]) - len(_STUB)), symbol, count=1)


@work(list[int], dict[int, str])
def host_symbols(files: Sequence[OpenFile], addresses: list[int]) -> Iterator[dict[int, str]]:
    """Yield the symbols that begin at link-time addresses of each file."""
    for file in files:
        if file.descriptor >= 0:
            try:
                yield symbols_at(ElfFile.of(file, file.path), addresses)
            except (ElfError, struct.error):
                yield {}


def symbols_at(elf: ElfFile, addresses: Collection[int]) -> dict[int, str]:
    """Return the symbols of variables and functions that begin at link-time addresses."""
    found: dict[int, str] = {}
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
        symbols = symbols[(symbols["section"] != 0) & ((kind == _OBJECT) | (kind == _FUNCTION))]
        strings = elf.sections[section.link]
        for address in addresses:
            if address not in found and 0 <= address < 1 << 64:
                its = symbols["name"][symbols["value"] == np.uint64(address)][:_MAX_ALIASES].tolist()
                name = next(filter(None, (_name(elf, strings.offset + at, strings.size - at) for at in its)), None)
                if name is not None:
                    found[address] = name
    return found


def _name(elf: ElfFile, offset: int, left: int) -> str:
    raw = elf.read(offset, min(_MAX_NAME, max(left, 0))).partition(b"\0")[0]
    return raw.partition(b"@")[0].decode("utf-8", "replace")
