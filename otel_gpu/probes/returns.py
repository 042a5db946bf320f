"""At which instructions does a function return, and are those all its ways out?

A return probe leaves an address on the stack that no C++ exception gets past, and the program would end with it. So the
returns of functions that throw are seen at their own `ret` instructions.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ..bpf.abi.unwinding import RowKind
from ..errors import OtelGpuError
from ..sandbox.elf import EM_AARCH64, EM_X86_64, PT_LOAD, ElfFile, Symbol
from ..signals.structs import Frozen
from ..stacks.eh_frame.index import FrameIndex
from ..stacks.eh_frame.records import FrameSection
from ..stacks.eh_frame.rows import UnwindError, UnwindTable
from ..stacks.eh_frame.tables import compile_part

_MAX_FUNCTION = 1 << 20
_RETURNS = frozenset({"ret", "retq", "retaa", "retab"})
_TARGET = re.compile(r"(?:^|[ #])0x([0-9a-f]+)$")
"""Of a direct jump, where its operands end."""
_RETURN_ADDRESS = 8
"""Bytes, on x86-64: what is left of a frame where a function returns, or goes on in another in its place."""


class WaysOut(Frozen):
    """How a function is left, but for exceptions."""

    returns: tuple[int, ...]
    """The addresses of its return instructions."""
    are_all: bool
    """False: it may go on in another function, which returns in its place."""


def ways_out(elf: ElfFile, symbol: Symbol) -> WaysOut:
    """Look at a function of an ELF file."""
    import capstone  # here, because an agent without targets need not carry its 10 MB

    machines = {
        EM_X86_64: (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
        EM_AARCH64: (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM),
    }
    if elf.machine not in machines or not 0 < symbol.size <= _MAX_FUNCTION:
        return WaysOut((), are_all=False)
    end = symbol.value + symbol.size
    leaves_frame = _leaving(elf, symbol)
    returns: list[int] = []
    are_all, at = True, symbol.value
    code = elf.read_vaddr(symbol.value, symbol.size)
    for address, size, mnemonic, operands in capstone.Cs(*machines[elf.machine]).disasm_lite(code, symbol.value):
        at = address + size
        name = mnemonic.rpartition(" ")[2]  # of `repz ret`
        if name in _RETURNS:
            returns.append(address)
        elif _is_jump(elf.machine, name):
            target = _TARGET.search(operands)
            is_inside = target is not None and symbol.value <= int(target[1], 16) < end
            are_all = are_all and (is_inside or not leaves_frame(address))
    return WaysOut(tuple(returns), are_all and at == end)


def _is_jump(machine: int, name: str) -> bool:
    if machine == EM_X86_64:
        return name.startswith("j")
    return name in {"b", "br", "braa", "brab", "braaz", "brabz", "cbz", "cbnz", "tbz", "tbnz"} or name.startswith("b.")


def _leaving(elf: ElfFile, symbol: Symbol) -> Callable[[int], bool]:
    """Return what tells of an address whether the function has no frame there any more, or may have none.

    A jump elsewhere from within a frame leads to a part of the function that the compiler has put aside, or by a table
    to another place in it.
    """
    try:
        table = _rows_of(elf, symbol)
    except OtelGpuError:
        table = None
    if table is None:
        return lambda _address: True
    rows, base = table, min((s.vaddr for s in elf.segments if s.type == PT_LOAD), default=0)

    def leaves(address: int) -> bool:
        row = rows.find(address - base)
        if row is None or row["kind"] not in {RowKind.SP, RowKind.FP, RowKind.SP_LARGE}:
            return True
        return bool(row["kind"] == RowKind.SP and row["cfa_offset"] <= _RETURN_ADDRESS)

    return leaves


def _rows_of(elf: ElfFile, symbol: Symbol) -> UnwindTable | None:
    section = FrameSection.of(elf)
    index = FrameIndex.of(elf, section)
    if index is None:
        raise UnwindError(f"{elf.path}: its frame descriptions are not sorted")
    at = int(np.searchsorted(index.starts, symbol.value, side="right")) - 1
    if at < 0 or int(index.starts[at]) != symbol.value:
        return None
    return compile_part(elf, section, index.offsets[at : at + 1])
