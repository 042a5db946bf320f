"""How does the kernel run each aarch64 instruction under a probe, and which ones leave a call's arguments alone?

The rules are those of arch/arm64/kernel/probes/decode-insn.c: branches and pc-relative addresses are simulated; what
loads literals, is exclusive or changes the machine's state is refused; the rest is single-stepped out of line. Linux
6.13 added `nop` to the simulated ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from .prologue import Cost, Step, words

_NOP = 0xD503201F
_SIMULATED = words("b bl br blr ret cbz cbnz tbz tbnz adr adrp")
_REFUSED = words("brk hlt svc hvc smc eret eretaa eretab msr dcps1 dcps2 dcps3 udf drps")
_EXCLUSIVE_STEMS = ("ldxr", "ldaxr", "stxr", "stlxr", "ldxp", "ldaxp", "stxp", "stlxp")
_READS_ONLY = words("cmp cmn tst nop bti ccmp")
_WRITES_FIRST_OPERAND = words(
    "mov movz movn movk mvn adr adrp add sub and orr eor lsl lsr asr ldr ldrb ldrh ldrsw ldur cset"
)
# x8 is left alone too: it carries the address of a large result. x16-x18 belong to the linker and the platform.
_SCRATCH_REGISTERS = frozenset(f"{kind}{number}" for kind in "xw" for number in range(9, 18))


class Arm64Prologue:
    """The site rules of aarch64. `fast_nops`: this kernel simulates `nop`."""

    def __init__(self, *, fast_nops: bool) -> None:
        import capstone  # here, because an agent without targets need not carry its 10 MB

        self._fast_nops = fast_nops
        self._decoder = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
        self._decoder.detail = True
        self._register_operand = capstone.arm64.ARM64_OP_REG

    def steps(self, code: bytes, vaddr: int) -> Iterator[Step]:
        """Yield the instructions from the function's entry on, until one cannot be decoded."""
        for instruction in self._decoder.disasm(code, vaddr):
            word = int.from_bytes(instruction.bytes, "little")
            text = f"{instruction.mnemonic} {instruction.op_str}".rstrip()
            reason = _refusal(instruction.mnemonic, word)
            cost = Cost.NONE if reason else self._cost(instruction.mnemonic, word)
            yield Step(instruction.size, text, cost, self._is_passable(instruction), reason)

    def is_branch_target(self, code: bytes, first: int, last: int) -> bool:
        """Say whether a direct branch in `code` leads to an offset in `first`..`last`."""
        for at, (word,) in enumerate(struct.iter_unpack("<I", code[: len(code) & ~3])):
            displacement = _displacement(word)
            if displacement is not None and first <= 4 * at + displacement <= last:
                return True
        return False

    def _cost(self, mnemonic: str, word: int) -> Cost:
        if mnemonic in _SIMULATED or mnemonic.startswith("b."):
            return Cost.EMULATED
        return Cost.EMULATED if self._fast_nops and word == _NOP else Cost.SINGLE_STEPPED

    def _is_passable(self, instruction: Any) -> bool:
        # An allow-list. What signs or saves the link register ends the walk: a return probe rewrites it.
        if instruction.mnemonic in _READS_ONLY:
            return True
        if instruction.mnemonic not in _WRITES_FIRST_OPERAND or instruction.writeback or not instruction.operands:
            return False
        target = instruction.operands[0]
        return target.type == self._register_operand and instruction.reg_name(target.reg) in _SCRATCH_REGISTERS


def _refusal(mnemonic: str, word: int) -> str | None:
    if word & 0x3B000000 == 0x18000000:
        return "the kernel refuses probes on loads of pc-relative literals"
    if mnemonic in _REFUSED or mnemonic.startswith(_EXCLUSIVE_STEMS):
        return f"the kernel refuses probes on `{mnemonic}`"
    return None


def _displacement(word: int) -> int | None:
    """Return how far a direct branch goes, in bytes."""
    if word & 0x7C000000 == 0x14000000:  # b, bl
        return _signed(word & 0x3FFFFFF, 26) * 4
    if word & 0xFF000010 == 0x54000000 or word & 0x7E000000 == 0x34000000:  # b.cond, cbz, cbnz
        return _signed(word >> 5 & 0x7FFFF, 19) * 4
    if word & 0x7E000000 == 0x36000000:  # tbz, tbnz
        return _signed(word >> 5 & 0x3FFF, 14) * 4
    return None


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value
