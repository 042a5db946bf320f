"""Which constants are in the argument registers when x86-64 code calls a function? The rules are in constants.py."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from .constants import Call

_MASK32 = 0xFFFF_FFFF
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


def calls(code: bytes, vaddr: int, read_pointer: Callable[[int], int | None]) -> Iterator[Call]:
    """Yield the calls in `code`, which must begin with an instruction; `read_pointer` says what the loader wrote where."""
    registers: dict[str, int] = {}
    for address, size, mnemonic, operands in _decoder().disasm_lite(code, vaddr):
        if mnemonic == "call":
            yield Call(address, operands, tuple(map(registers.get, _ARGUMENTS)))
            registers = {}
        elif mnemonic[0] == "j" or mnemonic.startswith(("ret", "loop")):
            registers = {}
        elif mnemonic not in _KEEP:
            _execute(registers, mnemonic, operands, address + size, read_pointer)


def _execute(
    registers: dict[str, int], mnemonic: str, operands: str, following: int, read_pointer: Callable[[int], int | None]
) -> None:
    target, _, source = operands.partition(", ")
    family = _FAMILY.get(target)
    moves_strings = family is None and "[" in target and "[" in source
    if mnemonic in _WRITES_MORE or mnemonic.startswith("rep") or moves_strings:
        registers.clear()
        return
    if family is None:
        return
    value = None
    if mnemonic in ("mov", "movabs"):
        value = _value(registers, source)
        if value is None and source.startswith("qword ptr [rip"):
            value = read_pointer(following + _displacement(source))
    elif mnemonic == "lea" and source.startswith("[rip"):
        value = following + _displacement(source)
    elif mnemonic == "or" and source in ("-1", "0xffffffff", "0xffffffffffffffff"):
        value = _MASK32
    elif mnemonic == "xor" and source == target:
        value = 0
    if value is None or (target != family and target not in _IS_32_BIT):
        registers.pop(family, None)
    else:
        registers[family] = value & _MASK32 if target in _IS_32_BIT else value


def _value(registers: dict[str, int], source: str) -> int | None:
    family = _FAMILY.get(source)
    if family is not None:
        return registers.get(family)
    try:
        return int(source, 0)
    except ValueError:
        return None


def _displacement(source: str) -> int:
    inside = source[source.index("[") + 4 : source.index("]")].replace(" ", "")
    return int(inside, 0) if inside else 0


@functools.cache
def _decoder() -> Any:
    import capstone  # here, because an agent without targets need not carry its 10 MB

    return capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
