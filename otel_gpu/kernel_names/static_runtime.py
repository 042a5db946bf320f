"""Where are the functions of a CUDA runtime that was linked into this file, even if it is stripped?

Each runtime function hands its own name to the profiler's callbacks. So the name is a string of the file, and the one
function that takes the string's address is the function of that name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from ..address_spans import MAX_ADDRESS, Span, merge
from ..elf import PT_LOAD, SHT_NOBITS, ElfFile
from ..errors import ElfError
from .functions import FunctionTable
from .references import find_references

_SHF_ALLOC, _SHF_EXECINSTR = 2, 4
_PIECE = 4 << 20


def find_runtime_functions(elf: ElfFile, names: Iterable[str]) -> dict[str, int]:
    """Return the link-time address of each named runtime function; a name with no or several candidates is left out."""
    import numpy as np

    strings = _find_strings(elf, {name.encode() for name in names})
    if not strings:
        return {}
    sites, targets = find_references(elf, np.array(sorted(strings), np.int64))
    functions = FunctionTable(elf).containing(sites)
    candidates: dict[str, set[int]] = {}
    for start, target in zip(functions.starts[functions.held].tolist(), targets[functions.held].tolist(), strict=True):
        candidates.setdefault(strings[target], set()).add(start)
    single = {name: next(iter(starts)) for name, starts in candidates.items() if len(starts) == 1}
    # A function that mentions several names is a table of names, not a function of the runtime.
    claims = Counter(start for starts in candidates.values() for start in starts)
    return {name: start for name, start in single.items() if claims[start] == 1}


def _find_strings(elf: ElfFile, names: set[bytes]) -> dict[int, str]:
    """Return the addresses at which the names stand as whole strings, or as the tail that the linker merged with one."""
    longest = max(map(len, names), default=0)
    if not longest:
        return {}
    pattern = re.compile(rb"(?=(" + b"|".join(re.escape(name) for name in sorted(names, reverse=True)) + rb")\0)")
    found: dict[int, str] = {}
    for vaddr, offset, size in _constant_data(elf):
        if vaddr + size > MAX_ADDRESS:
            continue
        for at in range(0, size, _PIECE):
            piece = elf.read(offset + at, min(_PIECE + longest + 1, size - at))
            for match in pattern.finditer(piece):
                found[vaddr + at + match.start()] = match[1].decode()
    return found


def _constant_data(elf: ElfFile) -> list[tuple[int, int, int]]:
    """Return (address, offset, size) of what may hold strings; device code, hundreds of megabytes, holds none."""
    sections = [
        Span(s.offset, s.offset + s.size)
        for s in elf.sections
        if s.flags & _SHF_ALLOC
        and not s.flags & _SHF_EXECINSTR
        and s.type != SHT_NOBITS
        and s.name.startswith(".rodata")
    ]
    segments = [Span(s.offset, s.offset + s.file_size) for s in elf.segments if s.type == PT_LOAD]
    found = []
    for span in merge(sections or segments):
        try:
            found.append((elf.to_vaddr(span.start), span.start, min(span.end, elf.size) - span.start))
        except ElfError:
            continue  # a section that is not loaded
    return found
