"""Where does this CPython build keep a thread's PyThreadState? Decoded from PyGILState_GetThisThreadState.

The value read this way stays valid while the thread does not hold the GIL, as in most CUDA calls, when the
interpreter's own "current thread state" is NULL. The function is a few instructions in every build from 3.8 on:
it hands a key inside `_PyRuntime` to pthread_getspecific, or (3.15) reads a thread-local variable.
"""

from __future__ import annotations

import numpy as np

from ...sandbox.elf import ElfFile, Symbol
from ...signals.structs import Frozen
from .layout import TssKind

_MAX_FUNCTION = 96
_KEY_OFFSET = 4
"""`Py_tss_t` is {int is_initialized; pthread_key_t key} (`Include/pythread.h`)."""
_DTPMOD64 = 16
_RELA = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])


class ThreadStateSlot(Frozen):
    """Where the pointer is; the fields are those of `PythonLayout.with_tss`."""

    kind: TssKind
    offset: int = 0
    block: int = 0


NOT_FOUND = ThreadStateSlot(TssKind.NONE)


def find_slot(elf: ElfFile, function: Symbol, runtime: Symbol) -> ThreadStateSlot:
    """Follow the function's first path; NOT_FOUND for a shape that is not known."""
    import capstone
    from capstone import x86_const as x86

    code = elf.read_vaddr(function.value, min(function.size or _MAX_FUNCTION, _MAX_FUNCTION))
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    # What registers hold: an address, or an offset into _PyRuntime (its address comes from the GOT).
    known: dict[str, tuple[str, int]] = {}
    pair: int | None = None

    def in_runtime(value: tuple[str, int] | None) -> int | None:
        if value is None:
            return None
        offset = value[1] if value[0] == "runtime" else value[1] - runtime.value
        return offset if 0 < offset < runtime.size else None

    for instruction in decoder.disasm(code, function.value):
        name, operands = instruction.mnemonic, instruction.operands
        if name in ("call", "jmp"):
            offset = in_runtime(known.get("di"))
            if offset is not None:
                return ThreadStateSlot(TssKind.KEY, offset + _KEY_OFFSET)
            held = known.get("di")
            if name == "call" and held and held[0] == "address" and _is_tls_pair(elf, held[1]):
                pair, known = held[1], {}
                continue
            if held and held[0] == "key":
                return ThreadStateSlot(TssKind.KEY, held[1])
            return NOT_FOUND
        if name == "ret" or len(operands) != 2 or operands[0].type != x86.X86_OP_REG:
            continue
        to, source = _register(instruction.reg_name(operands[0].reg)), operands[1]
        value: tuple[str, int] | None = None
        if source.type == x86.X86_OP_IMM:
            held = known.get(to)
            if name == "mov":
                value = ("address", source.imm)
            elif name == "add" and held:
                value = (held[0], held[1] + source.imm)
        elif source.type == x86.X86_OP_REG:
            value = known.get(_register(instruction.reg_name(source.reg))) if name == "mov" else None
        elif source.type == x86.X86_OP_MEM:
            memory = source.mem
            base = instruction.reg_name(memory.base) if memory.base else ""
            if memory.segment == x86.X86_REG_FS:
                held = known.get(_register(base)) if base else ("address", 0)
                if name == "mov" and held and held[0] == "address":
                    slot = _signed(held[1] + memory.disp)
                    return ThreadStateSlot(TssKind.SLOT, slot) if -(1 << 20) < slot < 0 else NOT_FOUND
                return NOT_FOUND
            if base == "rip":
                at = instruction.address + instruction.size + memory.disp
                value = ("address", at)
            else:
                held = known.get(_register(base))
                value = (held[0], held[1] + memory.disp) if held else None
                if pair is not None and name == "mov" and _register(base) == "ax":
                    return ThreadStateSlot(TssKind.DTV, pair, memory.disp) if 0 <= memory.disp < 1 << 16 else NOT_FOUND
            if name == "mov":
                # A load: of the key itself, or of _PyRuntime's address from the GOT.
                offset = in_runtime(value)
                if operands[0].size == 4:
                    value = ("key", offset) if offset is not None else None
                else:
                    value = ("runtime", 0) if base == "rip" and offset is None else None
            elif name == "add":
                # clang: the offset first, then the address from the GOT on top.
                held = known.get(to)
                value = ("runtime", held[1]) if base == "rip" and held and held[0] == "address" else None
            elif name != "lea":
                value = None
        if value is None:
            known.pop(to, None)
        else:
            known[to] = value
    return NOT_FOUND


def _register(name: str) -> str:
    """Return one name for a register's 32- and 64-bit forms."""
    return name[1:] if name[:1] in ("r", "e") and not name[1:2].isdigit() else name.rstrip("d")


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _is_tls_pair(elf: ElfFile, address: int) -> bool:
    """Say whether the dynamic linker writes a TLS module number there."""
    section = elf.section(".rela.dyn")
    if section is None or section.size > 64 << 20:
        return False
    table = np.frombuffer(elf.section_data(section)[: section.size // _RELA.itemsize * _RELA.itemsize], _RELA)
    return bool(((table["offset"] == address) & (table["type"] == _DTPMOD64)).any())
