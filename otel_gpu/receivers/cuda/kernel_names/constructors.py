"""Which functions of a file register kernels with the CUDA runtime?

`__cudaRegisterFunction(module, stub, name, name, -1, ...)` is called by constructors that nvcc and clang write, once for
each kernel. They are found by the fifth argument, which is always -1.
"""

from __future__ import annotations

from typing import Any

from ....sandbox.elf import EM_AARCH64, EM_X86_64, ElfFile
from ....signals.structs import Frozen
from .functions import FunctionTable, read_code
from .loaded_pointers import LoadedPointers
from .references import CHUNK, OVERLAP, pointers

_NEAR = 256  # bytes within which a call's arguments are put together
_ONES = 0xFFFF_FFFF
_WORD = 4
_MAX_CONSTRUCTORS = 100_000
_MOV_W4_ONES = 0x1280_0004  # mov w4, #-1
_OR_R8D_ONES = 0xFFC8_8341  # or r8d, -1
_MOV_R8D, _MOV_R8 = b"\x41\xb8", b"\x49\xc7\xc0"  # mov r8d, imm32; mov r8, imm32


class Constructor(Frozen):
    """A function that sets a fifth argument to -1, at `last_site` for the last time."""

    start: int
    end: int
    last_site: int


def find_constructors(elf: ElfFile, functions: FunctionTable, loaded: LoadedPointers) -> tuple[list[Constructor], int]:
    """Return the functions that may register kernels, by address, and how many more there are than are looked at."""
    import numpy as np

    find = {EM_X86_64: _x86_sites, EM_AARCH64: _arm64_sites}[elf.machine]
    found: dict[int, Constructor] = {}
    skipped = 0
    for vaddr, code in read_code(elf, CHUNK, OVERLAP):
        sites = find(code) + vaddr
        if len(sites):
            sites = sites[_may_register(sites, vaddr, _takes_code(elf, functions, loaded, vaddr, code))]
        spans = functions.containing(sites)
        sites, starts, ends = (array[spans.held] for array in (sites, spans.starts, spans.ends))
        for last in np.flatnonzero(np.diff(starts, append=-1)).tolist():
            constructor = Constructor(int(starts[last]), int(ends[last]), int(sites[last]))
            if constructor.start in found or len(found) < _MAX_CONSTRUCTORS:
                found[constructor.start] = constructor
            else:
                skipped += 1
    return [found[start] for start in sorted(found)], skipped


def _takes_code(elf: ElfFile, functions: FunctionTable, loaded: LoadedPointers, vaddr: int, code: bytes) -> Any:
    """Return the instructions, sorted, that take the address of a function, or load it where the loader wrote it."""
    import numpy as np

    taken = [at[functions.code.hold(pointed)] for at, pointed in pointers(elf, vaddr, code, loads=False)]
    for at, slot in pointers(elf, vaddr, code, loads=True):
        where, value = loaded.values_at(slot)
        taken.append(at[where[functions.code.hold(value)]])
    return np.sort(np.concatenate(taken))


def _may_register(sites: Any, vaddr: int, taken: Any) -> Any:
    """Say which sites have such an instruction near, or their surroundings in another chunk."""
    import numpy as np

    first = np.searchsorted(taken, sites - _NEAR)
    has_one = np.append(taken, np.iinfo(np.int64).max)[first] <= sites + _NEAR
    return has_one | (sites < vaddr + _NEAR) | (sites >= vaddr + CHUNK - _NEAR)


def _x86_sites(code: bytes) -> Any:
    """Return where the instructions that set r8 begin, in order, but for those of the next chunk."""
    import numpy as np

    data = np.frombuffer(code, np.uint8)
    found = [np.zeros(0, np.int64)]
    for alignment in range(_WORD):
        if len(code) < alignment + _WORD:
            break
        words = np.frombuffer(code, "<u4", (len(code) - alignment) // _WORD, alignment)
        ones = np.flatnonzero(words == _ONES) * _WORD + alignment
        for before in (_MOV_R8D, _MOV_R8):
            at = ones[ones >= len(before)] - len(before)
            for offset, byte in enumerate(before):
                at = at[data[at + offset] == byte]
            found.append(at)
        found.append(np.flatnonzero(words == _OR_R8D_ONES) * _WORD + alignment)
    sites = np.sort(np.concatenate(found))
    return sites[sites < CHUNK]


def _arm64_sites(code: bytes) -> Any:
    import numpy as np

    words = np.frombuffer(code, "<u4", min(len(code), CHUNK) // _WORD)
    return np.flatnonzero(words == _MOV_W4_ONES) * _WORD
