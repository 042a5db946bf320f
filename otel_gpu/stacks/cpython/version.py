"""Reads which version of CPython a file holds: its debug offsets say so, or a constant, or what `sys.version` begins with."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping

from ...errors import ElfError
from ...sandbox.elf import ElfFile, Symbol
from .layout import COOKIE, UnsupportedPythonError
from .symbols import GET_VERSION, RUNTIME, VERSION

_MAX_FUNCTION = 128
_MAX_TEXT = 24
_TEXT = re.compile(rb"(3)\.(\d{1,2})\.\d+[\w+]*\0")


def version_of(elf: ElfFile, symbols: Mapping[str, Symbol]) -> tuple[tuple[int, int], int]:
    """Return the version and the release, such as 0x030b0700, of an interpreter; the release is 0 below 3.11."""
    if (constant := symbols.get(VERSION)) is not None:
        return _version(int.from_bytes(elf.read_vaddr(constant.value, 4), "little"))
    if (function := symbols.get(GET_VERSION)) is not None:
        for address in _addresses(elf, function):
            if match := _TEXT.match(_text(elf, address)):
                return (int(match[1]), int(match[2])), 0
    with contextlib.suppress(ElfError):
        head = elf.read_vaddr(symbols[RUNTIME].value, 16)
        if head.startswith(COOKIE):
            return _version(int.from_bytes(head[len(COOKIE) :], "little"))
    raise UnsupportedPythonError(
        f"{elf.path}: nothing in it says which CPython it holds; its processes get native stacks only"
    )


def _version(release: int) -> tuple[tuple[int, int], int]:
    return (release >> 24, release >> 16 & 0xFF), release


def _text(elf: ElfFile, address: int) -> bytes:
    try:
        return elf.peek(elf.to_offset(address), _MAX_TEXT)
    except ElfError:
        return b""


def _addresses(elf: ElfFile, function: Symbol) -> Iterator[int]:
    """Yield the addresses that a function names: `Py_GetVersion` is a call of snprintf with constant texts."""
    import capstone
    from capstone import x86_const as x86

    code = elf.read_vaddr(function.value, min(function.size or _MAX_FUNCTION, _MAX_FUNCTION))
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    for instruction in decoder.disasm(code, function.value):
        for operand in instruction.operands:
            if operand.type == x86.X86_OP_IMM:
                yield operand.imm
            elif operand.type == x86.X86_OP_MEM and operand.mem.base == x86.X86_REG_RIP:
                yield instruction.address + instruction.size + operand.mem.disp
