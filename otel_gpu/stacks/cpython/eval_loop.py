"""Finds all code of CPython's eval loop: by its symbol, or in a stripped file by what only an eval loop looks like.

A compiler may move most of the loop out of `_PyEval_EvalFrameDefault` into a cold part that has no symbol. In a stripped
file it is the function with a jump through a register or a table for every opcode, which marks its activations by a shim.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import numpy as np

from ...sandbox.elf import ElfFile, Symbol
from ..eh_frame.records import FrameRecords, read_records
from .layout import UnsupportedPythonError

SMALLEST_LOOP = 16 << 10
"""Every eval loop measured from 3.8 to 3.15 has more than 34 kB; less means that the opcodes are elsewhere."""
_MAX_EVAL = 4 << 20
_MAX_PARTS = 16
_JUMPS_OF_A_LOOP = 64
"""The eval loops measured have 128 to 218 jumps to a computed address, the next function of a CPython has 46."""
_MOST_LOOPS = 4
_PREAMBLE = 512
_SHIM_OWNER = re.compile(r"(?:byte|d?word) ptr \[r[sb]p [+-] 0x[0-9a-f]+\], (?:3|0x300|0x30000|0x3000000)")
"""How the loop makes the frame that is its shim, in its own stack: with 3 for its owner, in a byte or with its neighbours."""

Ranges = tuple[tuple[int, int], ...]


def eval_ranges(elf: ElfFile, symbol: Symbol, functions: Collection[int]) -> Ranges:
    """Return all parts of the eval loop, each from its first address to the one after its last."""
    return _Frames(read_records(elf)).parts(elf, symbol.value, symbol.size, functions)


def eval_ranges_without_symbols(elf: ElfFile, functions: Collection[int], current_frame: int) -> Ranges:
    """Return the same of a stripped CPython, 3.13 or later; UnsupportedPythonError where it cannot be told.

    `current_frame` is where a thread state has its innermost frame.
    """
    frames = _Frames(read_records(elf))
    found: set[Ranges] = set()
    for start, stop in frames.likely_loops(elf):
        ranges = frames.parts(elf, start, stop - start, functions)
        if any(_begins_activation(elf, part, end, current_frame) for part, end in ranges):
            found.add(ranges)
    if len(found) != 1:
        raise UnsupportedPythonError(
            f"{elf.path} holds a CPython and was stripped, and {len(found) or 'no'} functions look like its eval loop: its "
            "processes get native stacks only; link it with -rdynamic, or keep .symtab (do not strip it), for Python functions"
        )
    return found.pop()


class _Frames:
    """The frame descriptions of a file, by address."""

    def __init__(self, records: FrameRecords) -> None:
        self._records = records
        self._order = np.argsort(records.start, kind="stable")
        self._starts = records.start[self._order]

    def _holder(self, address: int) -> int | None:
        """Return which frame description holds an address."""
        n = int(np.searchsorted(self._starts, address, side="right")) - 1
        if n < 0 or address >= int(self._records.stop[self._order[n]]):
            return None
        return int(self._order[n])

    def parts(self, elf: ElfFile, start: int, size: int, functions: Collection[int]) -> Ranges:
        """Return a function's own code, and what it jumps into that is no function of its own."""
        records = self._records
        first = self._holder(start)
        stop = start + size if size else 0
        if first is not None:
            stop = max(stop, int(records.stop[first]))
        if not start < stop <= start + _MAX_EVAL:
            raise UnsupportedPythonError(f"{elf.path}: an eval loop of {stop - start} bytes is not believable")
        parts = {start: stop}
        pending = [(first, start, stop)]
        while pending and len(parts) < _MAX_PARTS:
            origin, start, stop = pending.pop()
            for target in sorted(set(_jumps(elf, start, stop))):
                found = self._holder(target)
                if found is None or any(a <= target < b for a, b in parts.items()):
                    continue
                begin, end = int(records.start[found]), int(records.stop[found])
                # Compilers describe a function's cold part right after the function; into others' middle nobody jumps.
                is_cold = begin not in functions and (target != begin or (origin is not None and found == origin + 1))
                if is_cold and end - begin <= _MAX_EVAL:
                    parts[begin] = end
                    pending.append((found, begin, end))
        return tuple(sorted(parts.items()))

    def likely_loops(self, elf: ElfFile) -> list[tuple[int, int]]:
        """Return the large functions with the most jumps to a computed address."""
        sizes = self._records.stop - self._records.start
        large = np.flatnonzero((sizes >= SMALLEST_LOOP) & (sizes <= _MAX_EVAL))
        counted = []
        for n in large.tolist():
            start, stop = int(self._records.start[n]), int(self._records.stop[n])
            code = np.frombuffer(elf.read_vaddr(start, stop - start), np.uint8)
            # jmp r/m64 is FF /4.
            jumps = int(np.count_nonzero((code[:-1] == 0xFF) & (code[1:] & 0x38 == 0x20)))
            if jumps >= _JUMPS_OF_A_LOOP:
                counted.append((jumps, start, stop))
        return [(start, stop) for _, start, stop in sorted(counted, reverse=True)[:_MOST_LOOPS]]


def _begins_activation(elf: ElfFile, start: int, stop: int, current_frame: int) -> bool:
    """Say whether a function begins by making a shim, and a frame the thread's innermost."""
    import capstone

    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    code = elf.read_vaddr(start, min(stop - start, _PREAMBLE))
    stores = [operands for _, _, name, operands in decoder.disasm_lite(code, start) if name == "mov"]
    links = re.compile(rf"qword ptr \[r(?!sp|bp)\w+ \+ {current_frame:#x}\], r\w+")
    return any(map(_SHIM_OWNER.fullmatch, stores)) and any(map(links.fullmatch, stores))


def _jumps(elf: ElfFile, start: int, stop: int) -> Iterator[int]:
    """Yield the targets outside [start, stop) of direct jumps inside it."""
    import capstone

    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.skipdata = True
    code = elf.read_vaddr(start, stop - start)
    for _address, _size, name, operand in decoder.disasm_lite(code, start):
        if name[0] == "j" and operand.startswith("0x"):
            target = int(operand, 16)
            if not start <= target < stop:
                yield target
