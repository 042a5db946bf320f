"""What does a basic block of x86-64 code leave in the argument registers? The rules are in constants.py."""

from __future__ import annotations

import functools
from typing import Any

from ....signals.structs import Frozen
from .blocks import MASK32, MASK64, Block, CallBlock, Expression, Known, Loaded, Place, block, low32

_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8")
_WIDE = (
    "rax eax ax al ah|rbx ebx bx bl bh|rcx ecx cx cl ch|rdx edx dx dl dh|rsi esi si sil|rdi edi di dil|rbp ebp bp bpl|"
    "rsp esp sp spl|" + "|".join(f"r{n} r{n}d r{n}w r{n}b" for n in range(8, 16))
)
_FAMILY = {name: names.split()[0] for names in _WIDE.split("|") for name in names.split()}
_IS_32_BIT = frozenset(names.split()[1] for names in _WIDE.split("|"))
_KEEP = frozenset(("push", "cmp", "test", "nop", "endbr64", "bt", "ucomiss", "ucomisd", "comiss", "comisd"))

# What writes registers other than its first operand.
_WRITES_MORE = frozenset(
    ("xchg", "xadd", "cmpxchg", "cmpxchg8b", "cmpxchg16b", "mul", "mulx", "imul", "div", "idiv", "cdq", "cqo", "cwd")
).union(
    ("cpuid", "rdtsc", "rdtscp", "syscall", "enter", "lodsb", "lodsd", "lodsq", "stosb", "stosd", "stosq", "xgetbv")
)
_NUMBER = frozenset("-0123456789")
_FIELD = 4
_NEAR_BRANCH = 5
"""Bytes from which on a direct branch has a distance of four bytes; below it is one."""


class _Relative(Frozen):
    """The address at a distance from the end of an instruction: of the 4 bytes at `at`, which ends the instruction."""

    at: int

    def value(self, place: Place) -> int | None:
        return place.vaddr + self.at + _FIELD + place.field(self.at, _FIELD, signed=True)


class _Immediate(Frozen):
    """A number in an instruction, widened with its sign where it is shorter than the register."""

    at: int
    size: int
    mask: int

    def value(self, place: Place) -> int | None:
        return place.field(self.at, self.size, signed=True) & self.mask


def decode(code: bytes, vaddr: int) -> Block | int:
    """Return the block that `code` begins with; how many bytes could be decoded, where it does not end in there."""
    registers: dict[str, Expression] = {}
    fields: list[tuple[int, int]] = []
    end = 0
    for address, size, mnemonic, operands in _decoder().disasm_lite(code, vaddr):
        end = address + size - vaddr
        at = end - _FIELD
        is_relative = _distance(operands) == int.from_bytes(code[at:end], "little", signed=True)
        if is_relative:
            fields.append((at, MASK32))
        if mnemonic == "call":
            if operands.startswith("0x"):
                fields.append((at, MASK32))
                callee: Expression | None = _Relative(at)
            else:
                callee = Loaded(_Relative(at)) if is_relative else registers.get(operands)
            return block(code[:end], fields, CallBlock(callee, tuple(map(registers.get, _ARGUMENTS)), end - size))
        if mnemonic[0] == "j" or mnemonic.startswith(("ret", "loop")):
            if operands.startswith("0x"):
                fields.append((at, MASK32) if size >= _NEAR_BRANCH else (end - 1, 0xFF))
            return block(code[:end], fields, None)
        if mnemonic not in _KEEP:
            _execute(registers, fields, mnemonic, operands, code, end, _Relative(at) if is_relative else None)
    return end


def _execute(
    registers: dict[str, Expression],
    fields: list[tuple[int, int]],
    mnemonic: str,
    operands: str,
    code: bytes,
    end: int,
    pointed: Expression | None,
) -> None:
    target, _, source = operands.partition(", ")
    family = _FAMILY.get(target)
    moves_strings = family is None and "[" in target and "[" in source
    if mnemonic in _WRITES_MORE or mnemonic.startswith("rep") or moves_strings:
        registers.clear()
        return
    if family is None:
        return
    is_32_bit = target in _IS_32_BIT
    value: Expression | None = None
    if target != family and not is_32_bit:
        pass  # a part of the register
    elif mnemonic in ("mov", "movabs"):
        if source in _FAMILY:
            value = registers.get(_FAMILY[source])
        elif source.startswith("qword ptr [rip"):
            value = Loaded(pointed) if pointed is not None else None
        else:
            value = _immediate(
                fields, code, end, source, MASK32 if is_32_bit else MASK64, 8 if "abs" in mnemonic else 4
            )
    elif mnemonic == "lea" and source.startswith("[rip"):
        value = pointed
    elif mnemonic == "or" and source in ("-1", "0xffffffff", "0xffffffffffffffff"):
        value = Known(MASK64)
    elif mnemonic == "xor" and source == target:
        value = Known(0)
    if value is None:
        registers.pop(family, None)
    else:
        registers[family] = low32(value) if is_32_bit else value


def _immediate(
    fields: list[tuple[int, int]], code: bytes, end: int, source: str, mask: int, size: int
) -> Expression | None:
    """Return the number that an instruction ends with."""
    try:
        shown = int(source, 0) & mask
    except ValueError:
        return None
    at = end - size
    if shown != int.from_bytes(code[at:end], "little", signed=True) & mask:
        return Known(shown)
    fields.append((at, (1 << 8 * size) - 1))
    return _Immediate(at, size, mask)


def _distance(operands: str) -> int | None:
    """Return the distance of an operand that is relative to the instruction pointer, if that ends the instruction."""
    _, found, rest = operands.partition("[rip")
    inside, _, behind = rest.partition("]")
    # A number behind it is an immediate, which comes last.
    if not found or behind.rpartition(", ")[2][:1] in _NUMBER:
        return None
    return int(inside.replace(" ", ""), 0) if inside else 0


@functools.cache
def _decoder() -> Any:
    import capstone  # here, because an agent without targets need not carry its 10 MB

    return capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
