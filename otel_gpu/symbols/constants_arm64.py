"""Which constants are in the argument registers when aarch64 code calls a function? The rules are in constants.py."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from .constants import Call

_MASK32 = 0xFFFF_FFFF
_MASK64 = 0xFFFF_FFFF_FFFF_FFFF
_ARGUMENTS = ("x0", "x1", "x2", "x3", "x4")
_TRANSFERS = ("b", "br", "ret", "cbz", "cbnz", "tbz", "tbnz")
_KEEP = ("cmp", "cmn", "tst", "nop", "ccmp", "bti", "paciasp", "autiasp")


def calls(code: bytes, vaddr: int, read_pointer: Callable[[int], int | None]) -> Iterator[Call]:
    """Yield the calls in `code`."""
    registers: dict[str, int] = {}
    for address, _, mnemonic, operands in _decoder().disasm_lite(code, vaddr):
        if mnemonic in ("bl", "blr"):
            yield Call(address, operands, tuple(map(registers.get, _ARGUMENTS)))
            registers = {}
        elif mnemonic in _TRANSFERS or mnemonic.startswith("b."):
            registers = {}
        elif mnemonic.startswith("st"):
            _forget_base(registers, operands)
        elif mnemonic not in _KEEP:
            _execute(registers, mnemonic, operands, read_pointer)


def _execute(
    registers: dict[str, int], mnemonic: str, operands: str, read_pointer: Callable[[int], int | None]
) -> None:
    target, *sources = operands.replace("[", "").replace("]", "").replace("!", "").split(", ")
    value = None
    if mnemonic in ("adrp", "adr", "mov", "movz") and len(sources) == 1:
        value = _value(registers, sources[0])
    elif mnemonic == "add" and len(sources) == 2 and sources[1].startswith("#"):
        base = registers.get(sources[0])
        value = None if base is None else base + int(sources[1][1:], 0)
    elif mnemonic == "ldr" and target[:1] == "x" and operands.endswith("]"):
        base = registers.get(sources[0])
        offset = sources[1] if len(sources) == 2 else "#0"
        value = read_pointer(base + int(offset[1:], 0)) if base is not None and offset.startswith("#") else None
    if mnemonic.startswith("ld"):
        _forget_base(registers, operands)
        if mnemonic.startswith(("ldp", "ldnp", "ldxp", "ldaxp")) and sources:
            registers.pop("x" + sources[0][1:], None)
    if value is None:
        registers.pop("x" + target[1:], None)
    else:
        registers["x" + target[1:]] = value & (_MASK32 if target[:1] == "w" else _MASK64)


def _value(registers: dict[str, int], source: str) -> int | None:
    if source.startswith("#"):
        return int(source[1:], 0)
    if source in ("xzr", "wzr"):
        return 0
    return registers.get("x" + source[1:])


def _forget_base(registers: dict[str, int], operands: str) -> None:
    """Forget the address register of a load or store that moves it on."""
    if "]!" in operands or "], " in operands:
        inside = operands.partition("[")[2]
        registers.pop(inside.replace("]", ",").split(",")[0].strip(), None)


@functools.cache
def _decoder() -> Any:
    import capstone  # here, because an agent without targets need not carry its 10 MB

    return capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
