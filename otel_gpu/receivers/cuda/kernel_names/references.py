"""Which instructions point at given addresses?

Position-independent x86-64 code names an address in one way, relative to the instruction pointer: `lea` for the address
itself, `mov` for what the loader wrote at it; aarch64 code puts it together from a page (`adrp`) and the rest (`add`,
`ldr`) a few instructions later. Those shapes are found over 130 MB of code in about a second with numpy, without
decoding. x86-64 code linked to a fixed address uses `mov reg, imm32` as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....sandbox.elf import EM_AARCH64, EM_X86_64, ElfFile
from .functions import read_code

MAX_REFERENCES = 1_000_000
"""In one file; torch's kernels are mentioned 65,000 times."""

CHUNK = 1 << 20
"""How much code is looked at at once."""
_X86_TAIL = 8
_ARM64_REACH = 12  # instructions behind an adrp in which its other half is looked for
OVERLAP = 4 * (2 * _ARM64_REACH + 1)
_ET_EXEC = 2
_LEA, _LOAD = 0x8D, 0x8B
_SHAPE, _ADD, _LDR = 0xFFC0_0000, 0x9100_0000, 0xF940_0000  # add Xd, Xn, #imm and ldr Xt, [Xn, #imm]


def find_references(elf: ElfFile, targets: Any, *, loads: bool = False) -> tuple[Any, Any]:
    """Return (addresses of instructions, the target of each) for all that point at one of the sorted `targets`.

    `loads` looks for instructions that read a pointer at a target instead of taking its address. Beyond MAX_REFERENCES
    none are looked for.
    """
    import numpy as np

    sites, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    left = MAX_REFERENCES
    if elf.machine in (EM_X86_64, EM_AARCH64) and len(targets):
        for vaddr, code in read_code(elf, CHUNK, OVERLAP):
            for at, pointed in pointers(elf, vaddr, code, loads=loads):
                # Most point elsewhere, which costs less to see than to look up.
                near = np.flatnonzero((pointed >= targets[0]) & (pointed <= targets[-1]))
                hit = near[targets[np.searchsorted(targets, pointed[near])] == pointed[near]][:left]
                left -= len(hit)
                sites.append(at[hit])
                found.append(pointed[hit])
            if not left:
                break
    return np.concatenate(sites), np.concatenate(found)


def pointers(elf: ElfFile, vaddr: int, code: bytes, *, loads: bool) -> list[tuple[Any, Any]]:
    """Return (addresses of instructions, where each points) for the first CHUNK bytes of `code`, OVERLAP more at hand."""
    import numpy as np

    if elf.machine == EM_X86_64:
        return _x86_pointers(np.frombuffer(code, np.uint8), vaddr, elf.type == _ET_EXEC, loads)
    return _arm64_pointers(np.frombuffer(code[: len(code) & ~3], "<u4"), vaddr, loads)


def _x86_pointers(code: Any, vaddr: int, fixed: bool, loads: bool) -> list[tuple[Any, Any]]:
    import numpy as np

    if len(code) < _X86_TAIL:
        return []
    # At most CHUNK instructions begin here; the overlap only completes the last of them.
    limit = min(CHUNK, len(code) - 7 + 1)
    at = np.flatnonzero(code[1 : limit + 1] == (_LOAD if loads else _LEA))
    at = at[((code[at] & 0xFB) == 0x48) & ((code[at + 2] & 0xC7) == 0x05)]
    result = [(at + vaddr, at + vaddr + 7 + int32(code, at + 3))]
    if fixed and not loads:
        at = np.flatnonzero((code[:limit] & 0xF8) == 0xB8)
        result.append((at + vaddr, int32(code, at + 1)))
    return result


def _arm64_pointers(code: Any, vaddr: int, loads: bool) -> list[tuple[Any, Any]]:
    import numpy as np

    result = []
    adrp = np.flatnonzero((code[: CHUNK // 4] & 0x9F00_0000) == 0x9000_0000)
    word = code[adrp].astype(np.int64)
    pages = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
    pages = np.where(pages >> 20, pages - (1 << 21), pages)
    pages = ((adrp * 4 + vaddr) >> 12) + pages << 12
    shape, scale = (_LDR, 8) if loads else (_ADD, 1)
    for at, page, where in _followers(code, adrp, pages, word & 31, adrp, shape):
        target = page + (code[where].astype(np.int64) >> 10 & 0xFFF) * scale
        result.append((at * 4 + vaddr, target))
        if not loads:
            # gcc's section anchors: the address of another object, and the distance to the one that is meant.
            anchor = code[where].astype(np.int64) & 31
            for first, base, last in _followers(code, at, target, anchor, where, _ADD):
                result.append((first * 4 + vaddr, base + (code[last].astype(np.int64) >> 10 & 0xFFF)))
    return result


def _followers(code: Any, at: Any, value: Any, register: Any, behind: Any, shape: int) -> Iterator[tuple[Any, ...]]:
    """Yield (at, value, index) where an instruction of a shape at that index, behind `behind`, takes up the register."""
    import numpy as np

    for distance in range(1, _ARM64_REACH + 1):
        where = np.minimum(behind + distance, len(code) - 1)
        second = code[where].astype(np.int64)
        fits = (behind + distance < len(code)) & ((second & _SHAPE) == shape) & ((second >> 5 & 31) == register)
        yield at[fits], value[fits], where[fits]


def int32(code: Any, at: Any) -> Any:
    """Return the signed numbers of 4 bytes at indices of an array of bytes."""
    import numpy as np

    value = code[at].astype(np.uint32)
    for byte in (1, 2, 3):
        value |= code[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return value.view(np.int32).astype(np.int64)
