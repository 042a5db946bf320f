"""Finds CPython in a file, whether it exports its symbols, has them in `.symtab` alone, or was stripped of them.

A program that holds a static CPython exports nothing of it unless it is linked with `-rdynamic`. From 3.10 on the runtime
has a section of its own, and from 3.13 on it begins with a cookie: these are left in a stripped file too.
"""

from __future__ import annotations

import numpy as np

from ...discovery.libraries import exports, names_symbol
from ...sandbox.elf import PF_W, PF_X, PT_LOAD, SHT_NOBITS, ElfFile, Symbol
from ...signals.structs import Frozen
from .layout import COOKIE, DEBUG_OFFSETS_SIZE, UnsupportedPythonError

RUNTIME, EVAL, GILSTATE, VERSION, GET_VERSION = (
    "_PyRuntime",
    "_PyEval_EvalFrameDefault",
    "PyGILState_GetThisThreadState",
    "Py_Version",
    "Py_GetVersion",
)
CODE_TYPE = "PyCode_Type"
WANTED = frozenset({RUNTIME, EVAL, GILSTATE, VERSION, GET_VERSION, CODE_TYPE})
_SECTION = ".PyRuntime"
_COLD = ".cold"
_BLOCK = 4 << 20
_MAX_TEXTS = 64 << 20
_ONLY_IN_CPYTHON = b"Python import machinery not initialized"
"""What `PyModule_Create` says, from 3.8 to 3.15 (`Objects/moduleobject.c`)."""


class InterpreterSymbols(Frozen):
    """What a file says of where its CPython lies."""

    named: dict[str, Symbol]
    """Those of `WANTED` that it has: `RUNTIME` alone where it was stripped."""
    functions: frozenset[int]
    """Link-time addresses at which functions begin."""


def holds_python(elf: ElfFile) -> bool:
    """Say whether a file may hold a CPython: quickly, for most files hold none."""
    return exports(elf, (RUNTIME, EVAL)) or names_symbol(elf, ".symtab", RUNTIME) or _is_stripped_python(elf)


def python_symbols(elf: ElfFile) -> InterpreterSymbols | None:
    """Return what a file says of its CPython; None where it holds none, UnsupportedPythonError where too little is left."""
    for table in (".dynsym", ".symtab"):
        if (found := _of_table(elf, table)) is not None:
            return found
    if (runtime := _described_runtime(elf)) is not None:
        return InterpreterSymbols({RUNTIME: runtime}, frozenset(s.value for s in elf.symbols()))
    if _is_stripped_python(elf):
        raise UnsupportedPythonError(
            f"{elf.path} holds a CPython below 3.13 and was stripped of its symbols, without which that cannot be followed: its "
            "processes get native stacks only; link it with -rdynamic, or keep .symtab (do not strip it), for Python functions"
        )
    return None


def _of_table(elf: ElfFile, table: str) -> InterpreterSymbols | None:
    if not names_symbol(elf, table, RUNTIME):
        return None
    symbols: dict[str, Symbol] = {}
    functions: set[int] = set()
    for symbol in elf.symbols(table):
        # In .symtab the compiler's names of cold parts, which are no functions.
        if _COLD not in symbol.name:
            functions.add(symbol.value)
        if symbol.name in WANTED:
            symbols[symbol.name] = symbol
    return InterpreterSymbols(symbols, frozenset(functions)) if {RUNTIME, EVAL} <= symbols.keys() else None


def _described_runtime(elf: ElfFile) -> Symbol | None:
    """Return where `_PyRuntime` is that describes itself, from 3.13 on."""
    section = elf.section(_SECTION)
    if section is not None and section.type != SHT_NOBITS:
        is_described = elf.read(section.offset, min(section.size, len(COOKIE))) == COOKIE
        return _runtime_at(section.vaddr, section.size) if is_described else None
    if elf.sections:
        return None
    # Without a table of sections: in what the program may write.
    for segment in elf.segments:
        if segment.type == PT_LOAD and segment.flags & (PF_W | PF_X) == PF_W:
            for at in range(0, segment.file_size, _BLOCK):
                block = elf.peek(segment.offset + at, min(_BLOCK, segment.file_size - at))
                words = np.frombuffer(block[: len(block) // 8 * 8], "<u8")
                for word in np.flatnonzero(words == int.from_bytes(COOKIE, "little")).tolist():
                    return _runtime_at(segment.vaddr + at + 8 * word, DEBUG_OFFSETS_SIZE)
    return None


def _runtime_at(address: int, size: int) -> Symbol:
    return Symbol(RUNTIME, address, size, 1, is_global=False)


def _is_stripped_python(elf: ElfFile) -> bool:
    if elf.section(_SECTION) is not None or _described_runtime(elf) is not None:
        return True
    # Below 3.10 only its texts are left.
    section = elf.section(".rodata")
    if section is None or section.type == SHT_NOBITS or elf.section(".symtab") is not None or section.size > _MAX_TEXTS:
        return False
    return _holds(elf, section.offset, section.size, _ONLY_IN_CPYTHON)


def _holds(elf: ElfFile, offset: int, size: int, text: bytes) -> bool:
    return any(text in elf.peek(offset + at, min(_BLOCK + len(text), size - at)) for at in range(0, size, _BLOCK))
