"""How does the kernel run each x86-64 instruction under a probe, and which ones leave a call's arguments alone?

The rules are those of arch/x86/kernel/uprobes.c: `branch_setup_xol_ops` and `push_setup_xol_ops` name what is emulated,
`is_prefix_bad` and the opcode tables what is refused; Linux 6.18 added longer nops to the first and the nop that is
optimised (commit "uprobes/x86: Add support to optimize uprobes").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .prologue import Cost, Step, words

_PAGE = 4096
_BASE = 0x10000
_REFUSED_PREFIXES = frozenset(b"\x26\x2e\x36\x3e\xf0")
_REFUSED = words("int3 int int1 iret iretd iretq hlt cli sti ud0 ud1 ud2 syscall sysenter sysret sysexit")
_PORT_IO = words("in insb insd insw out outsb outsd outsw")
_BRANCH_PREFIXES = b"\xf2\xf3"
_NOP5 = b"\x0f\x1f\x44\x00\x00"

# The nops that the kernel itself writes (x86_nops in arch/x86/include/asm/nops.h), by length.
_KERNEL_NOPS = frozenset(
    bytes.fromhex(h)
    for h in ("90", "6690", "0f1f00", "0f1f4000", "0f1f440000", "660f1f440000", "0f1f8000000000", "0f1f840000000000")
)

_ARGUMENT_REGISTERS = words(
    "rdi edi di dil rsi esi si sil rdx edx dx dl dh rcx ecx cx cl ch r8 r8d r8w r8b r9 r9d r9w r9b rsp esp sp spl"
)
_READS_ONLY = words("cmp test bt nop endbr64 endbr32")
_WRITES_FIRST_OPERAND = words("mov movabs movzx movsx movsxd lea xor or and add sub inc dec neg not shl shr sar")

# A direct branch back to the prologue: rel8 reaches 128 bytes, rel32 within the 4 KiB that are looked at ends in ff ff
# (backward) or 00 00 (forward, within the prologue itself).
_REL8 = re.compile(rb"(?=[\x70-\x7f\xe0-\xe3\xeb](.))", re.DOTALL)
_REL32 = re.compile(rb"(?=[\x80-\x8f\xe8\xe9](..(?:\xff\xff|\x00\x00)))", re.DOTALL)


class X86Prologue:
    """The site rules of x86-64. `long_nops`: this kernel emulates nops longer than one byte and optimises 5-byte ones."""

    def __init__(self, *, long_nops: bool) -> None:
        import capstone  # here, because an agent without targets need not carry its 10 MB

        self._long_nops = long_nops
        self._decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        self._decoder.detail = True
        self._register_operand = capstone.x86.X86_OP_REG

    def steps(self, code: bytes, vaddr: int) -> Iterator[Step]:
        """Yield the instructions from the function's entry on, until one cannot be decoded."""
        for instruction in self._decoder.disasm(code, vaddr):
            raw = bytes(instruction.bytes)
            text = f"{instruction.mnemonic} {instruction.op_str}".rstrip()
            reason = _refusal(instruction.mnemonic, raw)
            cost = Cost.NONE if reason else self._cost(raw, instruction.address)
            yield Step(instruction.size, text, cost, self._is_passable(instruction), reason)

    def is_branch_target(self, code: bytes, first: int, last: int) -> bool:
        """Say whether a direct branch in `code` leads to an offset in `first`..`last`."""
        suspects = set()
        for match in _REL8.finditer(code, 0, last + 130):
            target = match.end(1) + int.from_bytes(match[1], "little", signed=True)
            if first <= target <= last:
                suspects.add(target)
        for match in _REL32.finditer(code):
            target = match.end(1) + int.from_bytes(match[1], "little", signed=True)
            if first <= target <= last:
                suspects.add(target)
        if not suspects:
            return False
        # Bytes that look like a branch may be the middle of something else: only now is decoding worth its time.
        wanted = {f"{_BASE + target:#x}" for target in suspects}
        at = 0
        while at < len(code):
            for address, size, mnemonic, operands in self._decoder.disasm_lite(code[at:], _BASE + at):
                at = address + size - _BASE
                if operands in wanted and (mnemonic[0] == "j" or mnemonic.startswith(("call", "loop"))):
                    return True
            at += 1
        return False

    def _cost(self, raw: bytes, vaddr: int) -> Cost:
        if self._long_nops and raw in _KERNEL_NOPS:
            # The call that replaces the nop is written at once, so it must not straddle two pages.
            fits = vaddr % _PAGE <= _PAGE - len(_NOP5)
            return Cost.OPTIMIZED if raw == _NOP5 and fits else Cost.EMULATED
        opcode = raw.lstrip(b"\xf2\xf3\x66")
        if opcode == b"\x90":
            return Cost.EMULATED
        if 0x50 <= raw[0] <= 0x57 or (raw[0] == 0x41 and len(raw) == 2 and 0x50 <= raw[1] <= 0x57):
            return Cost.EMULATED
        return Cost.EMULATED if _is_relative_branch(raw) else Cost.SINGLE_STEPPED

    def _is_passable(self, instruction: Any) -> bool:
        # An allow-list: what is not known to leave arguments and stack alone ends the walk.
        if instruction.mnemonic in _READS_ONLY:
            return True
        if instruction.mnemonic not in _WRITES_FIRST_OPERAND or not instruction.operands:
            return False
        target = instruction.operands[0]
        if target.type != self._register_operand:
            return False
        return instruction.reg_name(target.reg) not in _ARGUMENT_REGISTERS


def _is_relative_branch(raw: bytes) -> bool:
    branch = raw.lstrip(_BRANCH_PREFIXES)
    if branch[:1] == b"\x0f":
        return len(branch) > 1 and 0x80 <= branch[1] <= 0x8F
    return branch != b"" and (branch[0] in (0xE8, 0xE9, 0xEB) or 0x70 <= branch[0] <= 0x7F)


def _refusal(mnemonic: str, raw: bytes) -> str | None:
    for byte in raw:
        if byte in _REFUSED_PREFIXES:
            return f"the kernel refuses probes on instructions with prefix {byte:#04x}"
        if byte not in b"\xf2\xf3\x64\x65\x66\x67":
            break
    if raw[:1] == b"\x66" and _is_relative_branch(raw[1:]):
        return "the kernel refuses probes on branches with a 16-bit prefix"
    if mnemonic in _REFUSED or mnemonic in _PORT_IO:
        return f"the kernel refuses probes on `{mnemonic}`"
    return None
