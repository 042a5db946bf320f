"""What does a basic block of aarch64 code leave in the argument registers? The rules are in constants.py."""

from __future__ import annotations

import functools
from typing import Any

from ....signals.structs import Frozen
from .blocks import MASK64, Block, CallBlock, Expression, Known, Loaded, Place, block, low32

_ARGUMENTS = ("x0", "x1", "x2", "x3", "x4")
_KEEP = ("cmp", "cmn", "tst", "nop", "ccmp", "bti", "paciasp", "autiasp")
_SIZE = 4
_PAGE_BITS = 12

# Instructions with addresses in them: (the bits that tell the instruction, those bits, the bits of the address).
_ADR, _ADRP = (0x9F00_0000, 0x1000_0000, 0x60FF_FFE0), (0x9F00_0000, 0x9000_0000, 0x60FF_FFE0)
_ADD, _LDR = (0xFFC0_0000, 0x9100_0000, 0x003F_FC00), (0xFFC0_0000, 0xF940_0000, 0x003F_FC00)
_BL = (0xFC00_0000, 0x9400_0000, 0x03FF_FFFF)
_BRANCHES = (
    (0xFC00_0000, 0x1400_0000, 0x03FF_FFFF),  # b
    (0xFF00_0010, 0x5400_0000, 0x00FF_FFE0),  # b.cond
    (0x7E00_0000, 0x3400_0000, 0x00FF_FFE0),  # cbz, cbnz
    (0x7E00_0000, 0x3600_0000, 0x0007_FFE0),  # tbz, tbnz
)
_TRANSFERS = ("b", "br", "ret", "cbz", "cbnz", "tbz", "tbnz")


class _Address(Frozen):
    """What `adrp` or `adr` makes, the instruction at `at`: the page, or the address itself."""

    at: int
    shift: int

    def value(self, place: Place) -> int | None:
        word = place.field(self.at, _SIZE)
        distance = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
        return (((place.vaddr + self.at >> self.shift) + _signed(distance, 21)) << self.shift) & MASK64


class _Sum(Frozen):
    """An address and the offset in the instruction at `at`."""

    base: Expression
    at: int
    scale: int

    def value(self, place: Place) -> int | None:
        base = self.base.value(place)
        return None if base is None else base + (place.field(self.at, _SIZE) >> 10 & 0xFFF) * self.scale & MASK64


class _BranchTarget(Frozen):
    """Where the `bl` at `at` goes."""

    at: int

    def value(self, place: Place) -> int | None:
        return place.vaddr + self.at + 4 * _signed(place.field(self.at, _SIZE) & 0x3FF_FFFF, 26)


def decode(code: bytes, vaddr: int) -> Block | int:
    """Return the block that `code` begins with; how many bytes could be decoded, where it does not end in there."""
    registers: dict[str, Expression] = {}
    fields: list[tuple[int, int]] = []
    end = 0
    for address, _, mnemonic, operands in _decoder().disasm_lite(code, vaddr):
        at = address - vaddr
        end = at + _SIZE
        word = int.from_bytes(code[at:end], "little")
        if mnemonic in ("bl", "blr"):
            if _is(word, _BL):
                fields.append((at, _BL[2]))
                callee: Expression | None = _BranchTarget(at)
            else:
                callee = registers.get(operands)
            return block(code[:end], fields, CallBlock(callee, tuple(map(registers.get, _ARGUMENTS)), at))
        if mnemonic in _TRANSFERS or mnemonic.startswith("b."):
            fields += [(at, shape[2]) for shape in _BRANCHES if _is(word, shape)]
            return block(code[:end], fields, None)
        if mnemonic.startswith("st"):
            _forget_base(registers, operands)
        elif mnemonic not in _KEEP:
            _execute(registers, fields, mnemonic, operands, word, at)
    return end


def _execute(
    registers: dict[str, Expression],
    fields: list[tuple[int, int]],
    mnemonic: str,
    operands: str,
    word: int,
    at: int,
) -> None:
    target, *sources = operands.replace("[", "").replace("]", "").replace("!", "").split(", ")
    value: Expression | None = None
    shape = next((shape for shape in (_ADRP, _ADR, _ADD, _LDR) if _is(word, shape)), None)
    if shape is not None:
        fields.append((at, shape[2]))
        base = registers.get(sources[0])
        if shape in (_ADRP, _ADR):
            value = _Address(at, _PAGE_BITS if shape is _ADRP else 0)
        elif base is not None:
            value = _Sum(base, at, 1) if shape is _ADD else Loaded(_Sum(base, at, 8))
    elif mnemonic in ("mov", "movz") and len(sources) == 1:
        value = _value(registers, sources[0])
    if mnemonic.startswith("ld"):
        _forget_base(registers, operands)
        if mnemonic.startswith(("ldp", "ldnp", "ldxp", "ldaxp")) and sources:
            registers.pop("x" + sources[0][1:], None)
    if value is None:
        registers.pop("x" + target[1:], None)
    else:
        registers["x" + target[1:]] = low32(value) if target[:1] == "w" else value


def _value(registers: dict[str, Expression], source: str) -> Expression | None:
    if source.startswith("#"):
        return Known(int(source[1:], 0) & MASK64)
    if source in ("xzr", "wzr"):
        return Known(0)
    return registers.get("x" + source[1:])


def _forget_base(registers: dict[str, Expression], operands: str) -> None:
    """Forget the address register of a load or store that moves it on."""
    if "]!" in operands or "], " in operands:
        inside = operands.partition("[")[2]
        registers.pop(inside.replace("]", ",").split(",")[0].strip(), None)


def _is(word: int, shape: tuple[int, int, int]) -> bool:
    return word & shape[0] == shape[1]


def _signed(number: int, bits: int) -> int:
    return number - (1 << bits) if number >> bits - 1 else number


@functools.cache
def _decoder() -> Any:
    import capstone  # here, because an agent without targets need not carry its 10 MB

    return capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
