"""Where does this CPython make, enter and free contextvars.Contexts, and where does a thread keep its current one?

`PyContext_CopyCurrent` is called for every task and callback of asyncio, and loads the thread state's `context` first of
all: the offset is read from there, since no version says it (`_Py_DebugOffsets` does not have it). A Context is freed by its
type's `tp_dealloc`, which has no symbol: the address stands in the type.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator, Sequence

from ...sandbox.address_spans import Span
from ...sandbox.elf import STT_FUNC, ElfFile, Symbol
from ...sandbox.memory import Memory, MemoryFault
from ...signals.structs import Frozen
from .layout import UnsupportedPythonError

COPY_CURRENT, ENTER, TYPE = "PyContext_CopyCurrent", "PyContext_Enter", "PyContext_Type"
SYMBOLS = (COPY_CURRENT, ENTER, TYPE)

_DEALLOC_AT = 48
"""`PyTypeObject.tp_dealloc`: Include/cpython/object.h."""
_METHODS_AT = 232
"""`PyTypeObject.tp_methods`: the same."""
_METHOD = struct.Struct("<QQQQ")
"""`PyMethodDef`: name, function, flags, documentation: Include/methodobject.h."""
_MOST_METHODS = 64
_LOOKED_AT = 256
_CALLS = 3
"""That are followed to the load, as 3.11 calls a function of its own."""
_OFFSETS = range(0x80, 0x200)
"""Where `PyThreadState.context` may be: 208 to 240 from 3.8 to 3.15."""

_MAX_DATA = 64 << 20
_PIECE = 1 << 20
_MAX_NAME = 16


def context_offset(elf: ElfFile, copy_current: Symbol) -> int:
    """Return where a thread state has its current context; UnsupportedPythonError where the code is of another shape."""
    import capstone
    from capstone import x86_const as x86

    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    left = [copy_current.value]
    for _ in range(_CALLS):
        if not left:
            break
        loaded: tuple[str, int] | None = None
        at = left.pop(0)
        for instruction in decoder.disasm(_code(elf, at), at):
            name, operands = instruction.mnemonic, instruction.operands
            if loaded and name == "test" and all(o.type == x86.X86_OP_REG for o in operands):
                registers = {instruction.reg_name(o.reg) for o in operands}
                if registers == {loaded[0]} and loaded[1] in _OFFSETS:
                    return loaded[1]
            loaded = None
            if name == "mov" and operands[0].type == x86.X86_OP_REG and operands[1].type == x86.X86_OP_MEM:
                memory = operands[1].mem
                if memory.base and not memory.index and operands[0].size == 8 and not memory.segment:
                    loaded = instruction.reg_name(operands[0].reg), memory.disp
            if name == "call" and operands[0].type == x86.X86_OP_IMM:
                left.append(operands[0].imm)
            if name == "ret":
                break
    raise UnsupportedPythonError(f"{elf.path}: {COPY_CURRENT} does not load a thread's context as known builds do")


def _code(elf: ElfFile, address: int) -> bytes:
    offset = elf.to_offset(address)
    return elf.peek(offset, _LOOKED_AT)


def dealloc_of(memory: Memory, context_type: int) -> int:
    """Return the address of the function that frees a Context, of the type at an address of the process."""
    address: int = struct.unpack("<Q", memory.read(context_type + _DEALLOC_AT, 8))[0]
    return address


def method_of(memory: Memory, of_type: int, name: str) -> int:
    """Return the address of the C function that is a method of a type of CPython's own; 0 where it has none of that name."""
    try:
        at: int = struct.unpack("<Q", memory.read(of_type + _METHODS_AT, 8))[0]
        for n in range(_MOST_METHODS):
            name_at, function, _, _ = _METHOD.unpack(memory.read(at + n * _METHOD.size, _METHOD.size))
            if not name_at:
                break
            if memory.read(name_at, _MAX_NAME).split(b"\0")[0] == name.encode():
                return int(function)
    except MemoryFault:
        pass
    return 0


class Method(Frozen):
    """A function of a C module, by the name that it has for Python; `entry` is where the module's table says so."""

    entry: int
    name: str
    function: int


def methods(memory: Memory, data: Sequence[Span], text: Span, names: Container[str]) -> Iterator[Method]:
    """Yield the wanted methods of C modules: `data` is where their tables may lie, and `text` where the functions must."""
    for entry, name_at, function in _pairs(memory, data, text):
        try:
            name = memory.read(name_at, _MAX_NAME).split(b"\0")[0].decode("ascii", "replace")
        except MemoryFault:
            continue
        if name in names:
            yield Method(entry, name, function)


def _pairs(memory: Memory, data: Sequence[Span], text: Span) -> Iterator[tuple[int, int, int]]:
    """Yield what may be names and functions: a pointer that is no code, and one that is, side by side, and where they lie."""
    import numpy as np

    left = _MAX_DATA
    for span in data:
        for start in range(span.start & -8, span.end, _PIECE):
            size = min(_PIECE + 8, span.end - start) & -8
            left -= size
            if size < 16 or left < 0:
                continue
            try:
                words = np.frombuffer(memory.read(start, size), "<u8")
            except MemoryFault:
                continue
            code = (words >= text.start) & (words < text.end)
            at = np.nonzero(~code[:-1] & code[1:] & (words[:-1] > _PIECE) & (words[:-1] < 1 << 56))[0]
            for n in at.tolist():
                yield start + 8 * n, int(words[n]), int(words[n + 1])


def function_at(elf: ElfFile, value: int, name: str) -> Symbol:
    """Return a function that has no symbol, as if it had one; ElfError where nothing is there."""
    elf.to_offset(value)
    return Symbol(name, value, 0, STT_FUNC, is_global=False)
