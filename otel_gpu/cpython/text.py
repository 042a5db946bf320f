"""What does a CPython binary say about itself: version, runtime, thread state, and where its eval loop lies?

The walker puts Python frames in place of the native frames of the eval loop, so it must know all of the loop's
code. A compiler may move most of it out of `_PyEval_EvalFrameDefault` into a cold part that has no symbol.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import numpy as np

from ..eh_frame.records import read_records
from ..elf import ElfFile, Symbol
from ..signals.structs import Frozen
from .layout import (
    DEBUG_OFFSETS_SIZE,
    PythonLayout,
    TssKind,
    UnsupportedPythonError,
    layout_for,
)
from .thread_state import NOT_FOUND, ThreadStateSlot, find_slot

RUNTIME, EVAL, GILSTATE, VERSION = (
    "_PyRuntime",
    "_PyEval_EvalFrameDefault",
    "PyGILState_GetThisThreadState",
    "Py_Version",
)
_LOCALS = {(3, 8): 360, (3, 9): 360, (3, 10): 352}
"""`PyFrameObject.f_localsplus` (`Include/cpython/frameobject.h`); later frames mark their activation."""
_PREAMBLE = 1024
_MAX_EVAL = 4 << 20
_MAX_PARTS = 16
_SMALLEST_LOOP = 16 << 10
"""Every eval loop measured from 3.8 to 3.15 has more than 34 kB; less means that the opcodes are elsewhere."""


class PythonBinary(Frozen):
    """One interpreter file; addresses are link-time addresses."""

    version: tuple[int, int]
    release: int
    """`Py_Version`, such as 0x030b0700; 0 below 3.11, where files do not say."""
    runtime: int
    """Address of `_PyRuntime`."""
    eval_ranges: tuple[tuple[int, int], ...]
    """All parts of the eval loop, each from its first address to the one after its last."""
    slot: ThreadStateSlot
    debug_offsets: bytes | None
    """The head of `_PyRuntime` as the file has it; from 3.13."""
    locals_to_cfa: int
    """Up to 3.10: how far from its end an activation's stack frame keeps where the frame's locals begin; 0 unknown."""
    is_tail_call: bool
    """The opcodes are functions of their own, so no range of addresses is the eval loop."""

    def layout(self) -> PythonLayout:
        """Return the offsets of this build; UnsupportedPythonError for one whose frames cannot be walked."""
        found = layout_for(self.version, self.debug_offsets)
        if self.is_tail_call:
            raise UnsupportedPythonError(
                f"CPython 3.{found.minor} is a tail-call build, which has no eval loop that could be told by its "
                "addresses; its processes get native stacks only"
            )
        if self.locals_to_cfa:
            found = found.with_marker(self.locals_to_cfa)
        if self.slot.kind is TssKind.NONE:
            return found
        return found.with_tss(self.slot.kind, self.slot.offset, self.slot.block)


def analyse_python(elf: ElfFile) -> PythonBinary | None:
    """Read an interpreter; None where the file is none, UnsupportedPythonError where it cannot be understood."""
    wanted = (RUNTIME, EVAL, GILSTATE, VERSION)
    symbols: dict[str, Symbol] = {}
    functions: set[int] = set()
    for symbol in elf.symbols(".dynsym"):
        functions.add(symbol.value)
        if symbol.name in wanted:
            symbols[symbol.name] = symbol
    if RUNTIME not in symbols or EVAL not in symbols:
        return None
    runtime = symbols[RUNTIME]
    version, release = version_of(elf, symbols.get(VERSION))
    ranges = _eval_ranges(elf, symbols[EVAL], functions)
    offsets = None
    if version >= (3, 13):
        offsets = elf.read_vaddr(runtime.value, min(DEBUG_OFFSETS_SIZE, runtime.size or DEBUG_OFFSETS_SIZE))
    slot = find_slot(elf, symbols[GILSTATE], runtime) if GILSTATE in symbols else NOT_FOUND
    return PythonBinary(
        version=version,
        release=release,
        runtime=runtime.value,
        eval_ranges=ranges,
        slot=slot,
        debug_offsets=offsets,
        locals_to_cfa=_locals_to_cfa(elf, symbols[EVAL].value, _LOCALS[version]) if version in _LOCALS else 0,
        is_tail_call=sum(stop - start for start, stop in ranges) < _SMALLEST_LOOP,
    )


def version_of(elf: ElfFile, constant: Symbol | None) -> tuple[tuple[int, int], int]:
    """Return the version and the release of an interpreter, by its symbol `VERSION` where it has one."""
    if constant is not None:
        release = int.from_bytes(elf.read_vaddr(constant.value, 4), "little")
        return (release >> 24, release >> 16 & 0xFF), release
    # Below 3.11 only names tell: the file's, or the one a shared library calls itself.
    strings = elf.section(".dynstr")
    own = elf.section_data(strings) if strings is not None and strings.size < 64 << 20 else b""
    for name in (os.path.basename(elf.path), os.path.basename(os.path.realpath(elf.path))):
        if match := re.search(r"python(3)\.(\d{1,2})", name):
            return (int(match[1]), int(match[2])), 0
    if found := re.search(rb"\0libpython(3)\.(\d{1,2})m?\.so", own):
        return (int(found[1]), int(found[2])), 0
    raise UnsupportedPythonError(
        f"{elf.path}: its name does not tell which Python it is, and below 3.11 nothing else does"
    )


def _eval_ranges(elf: ElfFile, symbol: Symbol, functions: set[int]) -> tuple[tuple[int, int], ...]:
    """Find the eval loop's parts: the symbol's code, and what it jumps into that is no function of its own."""
    records = read_records(elf)
    order = np.argsort(records.start, kind="stable")
    starts = records.start[order]

    def holder(address: int) -> int | None:
        """Return which frame description holds an address."""
        n = int(np.searchsorted(starts, address, side="right")) - 1
        if n < 0 or address >= int(records.stop[order[n]]):
            return None
        return int(order[n])

    first = holder(symbol.value)
    stop = symbol.value + symbol.size if symbol.size else 0
    if first is not None:
        stop = max(stop, int(records.stop[first]))
    if not symbol.value < stop <= symbol.value + _MAX_EVAL:
        raise UnsupportedPythonError(f"{elf.path}: an eval loop of {stop - symbol.value} bytes is not believable")
    parts = {symbol.value: stop}
    pending = [(first, symbol.value, stop)]
    while pending and len(parts) < _MAX_PARTS:
        origin, start, stop = pending.pop()
        for target in sorted(set(_jumps(elf, start, stop))):
            found = holder(target)
            if found is None or any(a <= target < b for a, b in parts.items()):
                continue
            begin, end = int(records.start[found]), int(records.stop[found])
            # Compilers describe a function's cold part right after the function; into others' middle nobody jumps.
            is_cold = begin not in functions and (target != begin or (origin is not None and found == origin + 1))
            if is_cold and end - begin <= _MAX_EVAL:
                parts[begin] = end
                pending.append((found, begin, end))
    return tuple(sorted(parts.items()))


def _locals_to_cfa(elf: ElfFile, start: int, offset: int) -> int:
    """Find where eval() spills `fastlocals`, its frame plus `offset`: computed and stored once, before the first opcode."""
    import capstone
    from capstone import x86_const as x86

    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    size, register = 8, 0
    for instruction in decoder.disasm(elf.read_vaddr(start, _PREAMBLE), start):
        operands = instruction.operands
        if instruction.id == x86.X86_INS_PUSH and not register and operands[0].type == x86.X86_OP_REG:
            size += 8
        if len(operands) != 2:
            continue
        to, source = operands
        if to.type == x86.X86_OP_REG and to.reg == x86.X86_REG_RSP and source.type == x86.X86_OP_IMM and size <= 64:
            # The first is the frame; what follows makes room for arguments, and gives it back.
            size += source.imm
        elif instruction.id == x86.X86_INS_LEA and source.mem.disp == offset and source.mem.base != x86.X86_REG_RSP:
            register = to.reg
        elif register and to.type == x86.X86_OP_MEM and source.type == x86.X86_OP_REG and source.reg == register:
            is_spill = to.mem.base == x86.X86_REG_RSP and not to.mem.index and 0 <= to.mem.disp < size
            return size - to.mem.disp if is_spill else 0
    return 0


def _jumps(elf: ElfFile, start: int, stop: int) -> Iterator[int]:
    """Yield the targets outside [start, stop) of direct jumps inside it."""
    import capstone

    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.skipdata = True
    code = elf.read_vaddr(start, stop - start)
    for _address, _size, name, operand in decoder.disasm_lite(code, start):
        if name[0] == "j" and operand.startswith("0x"):
            target = int(operand, 16)
            if not start <= target < stop:
                yield target
