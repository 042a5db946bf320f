"""Where does a communicator of this NCCL keep its rank? Where the library's own functions look for it.

The structure is opaque and differs from version to version. ncclCommUserRank(comm, int *rank) and ncclCommCount(comm, int *count)
load one field each and store it: that load is looked for in their code. Where there is not exactly one, it is not known.
"""

from __future__ import annotations

from typing import Any

from ..errors import ElfError
from ..sandbox.elf import EM_X86_64, PF_X, PT_LOAD, ElfFile, Symbol
from ..signals.structs import Frozen

_LOOKED_AT = 4096
_MOST_OFFSET = 4 << 20
_FIELD = 4
_WINDOW = 8
"""Instructions between a load and the store of what was loaded."""


class CommLayout(Frozen):
    """Offsets within a communicator, in bytes."""

    rank: int
    ranks: int


def layout_of(elf: ElfFile, user_rank: Symbol | None, count: Symbol | None) -> CommLayout | None:
    """Return where a communicator has its rank and the number of its ranks; None where that is not certain."""
    if elf.machine != EM_X86_64 or user_rank is None or count is None:
        return None
    try:
        rank, ranks = (field_told(_code(elf, symbol), symbol.value) for symbol in (user_rank, count))
    except ElfError:
        return None
    return CommLayout(rank, ranks) if rank is not None and ranks is not None and rank != ranks else None


def field_told(code: bytes, vaddr: int) -> int | None:
    """Return the offset of the field of its first argument that a function stores through its second; None if not certain."""
    import capstone  # here, because an agent without targets need not carry its 10 MB

    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    reading = _Reading(capstone, decoder)
    for instruction in decoder.disasm(code, vaddr):
        reading.take(instruction)
    return next(iter(reading.fields)) if len(reading.fields) == 1 else None


def _code(elf: ElfFile, symbol: Symbol) -> bytes:
    for segment in elf.segments:
        if segment.type == PT_LOAD and segment.flags & PF_X:
            end = segment.vaddr + segment.file_size
            if segment.vaddr <= symbol.value < end:
                size = min(symbol.size or _LOOKED_AT, _LOOKED_AT, end - symbol.value)
                return elf.read_vaddr(symbol.value, size)
    raise ElfError(f"{elf.path}: {symbol.name} is in no executable segment")


class _Reading:
    """What places have held the two arguments, and what was loaded from the first: over branches, so that nothing is forgotten.

    What may have held an argument is taken for it; that only one field is stored through the second makes up for that.
    """

    def __init__(self, capstone: Any, decoder: Any) -> None:
        self._x86 = capstone.x86
        self._decoder = decoder
        self._comm: set[object] = {"rdi"}
        self._out: set[object] = {"rsi"}
        self._loaded: dict[str, tuple[int, int]] = {}
        """Register -> field, and how many instructions ago."""
        self.fields: set[int] = set()

    def take(self, instruction: Any) -> None:
        """Take in the next instruction."""
        self._loaded = {r: (field, age + 1) for r, (field, age) in self._loaded.items() if age < _WINDOW}
        operands = instruction.operands
        if instruction.mnemonic == "call":
            # These are the callee's.
            for register in ("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11"):
                self._loaded.pop(register, None)
                self._comm.discard(register)
                self._out.discard(register)
            return
        if instruction.mnemonic not in ("mov", "movsxd") or len(operands) != 2:
            if (
                operands
                and operands[0].type == self._x86.X86_OP_REG
                and instruction.mnemonic not in ("cmp", "test", "push")
            ):
                self._loaded.pop(self._wide(operands[0].reg), None)
            return
        target, source = operands
        if target.type == self._x86.X86_OP_REG:
            self._to_register(self._wide(target.reg), source, target.size)
        elif target.type == self._x86.X86_OP_MEM:
            self._to_memory(target, source)

    def _to_register(self, register: str, source: Any, size: int) -> None:
        self._loaded.pop(register, None)
        held = self._held(source)
        for group in (self._comm, self._out):
            if held is not None and held in group and size == 8:
                group.add(register)
            elif register in ("rdi", "rsi", "rax", "rcx", "rdx"):
                group.discard(register)  # these change hands all the time
        if source.type == self._x86.X86_OP_MEM and size == _FIELD and not source.mem.index:
            base = self._wide(source.mem.base) if source.mem.base else ""
            if base in self._comm and 0 < source.mem.disp < _MOST_OFFSET and not source.mem.disp % _FIELD:
                self._loaded[register] = source.mem.disp, 0

    def _to_memory(self, target: Any, source: Any) -> None:
        base = self._wide(target.mem.base) if target.mem.base else ""
        if source.type != self._x86.X86_OP_REG or target.mem.index:
            return
        register = self._wide(source.reg)
        if base in self._out and not target.mem.disp and target.size == _FIELD:
            if register in self._loaded:
                self.fields.add(self._loaded[register][0])
            else:
                self.fields.add(-1)  # it stores something else, too: who knows which is the field
        elif base in ("rbp", "rsp") and target.size == 8:
            for group in (self._comm, self._out):
                if register in group:
                    group.add((base, target.mem.disp))

    def _held(self, source: Any) -> object | None:
        if source.type == self._x86.X86_OP_REG:
            return self._wide(source.reg)
        if source.type == self._x86.X86_OP_MEM and source.mem.base and not source.mem.index:
            return self._wide(source.mem.base), source.mem.disp
        return None

    def _wide(self, register: int) -> str:
        name = str(self._decoder.reg_name(register))
        return _WIDE.get(name, name)


_WIDE = {f"e{r}": f"r{r}" for r in ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp")} | {
    f"r{n}d": f"r{n}" for n in range(8, 16)
}
