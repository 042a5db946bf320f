"""Where do the functions of a file begin and end, when it has no symbols?

The answer is `.eh_frame_hdr`: a sorted table of every function's start, which stripping leaves in place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from ....errors import ElfError
from ....sandbox.address_spans import MAX_ADDRESS, Span, Spans, merge
from ....sandbox.elf import PF_X, PT_GNU_EH_FRAME, PT_LOAD, SHT_NOBITS, ElfFile
from ....signals.structs import Frozen

_HEADER = struct.Struct("<BBBBiI")
_SORTED_TABLE = (1, 0x03, 0x3B)  # version 1, a udata4 count, rows of data-relative sdata4
_MAX_FUNCTIONS = 4_000_000
_MAX_FUNCTION_SIZE = 1 << 20
_SHF_EXECINSTR = 4
_MAX_SPANS = 256


class Functions(Frozen):
    """The functions that hold some addresses, in parallel arrays."""

    held: Any
    """Which of the addresses are in a function."""
    starts: Any
    ends: Any


class FunctionTable:
    """The functions of one file, by address."""

    def __init__(self, elf: ElfFile) -> None:
        """Read the table; empty where the file has none."""
        import numpy as np

        self.code = Spans(code_spans(elf))
        self.starts: Any = np.zeros(0, np.int64)
        for segment in elf.segments:
            if segment.type == PT_GNU_EH_FRAME and segment.file_size >= _HEADER.size and segment.vaddr < MAX_ADDRESS:
                version, _, count_form, row_form, _, count = _HEADER.unpack(elf.read(segment.offset, _HEADER.size))
                if (version, count_form, row_form) != _SORTED_TABLE or count > _MAX_FUNCTIONS:
                    return
                rows = np.frombuffer(elf.read(segment.offset + _HEADER.size, 8 * count), "<i4")
                self.starts = np.sort(rows[::2].astype(np.int64) + segment.vaddr)
                return

    def containing(self, addresses: Any) -> Functions:
        """Return the functions that hold addresses; one ends where the next begins, at most 1 MiB behind its start."""
        import numpy as np

        if not len(self.starts):
            none = np.zeros(len(addresses), np.int64)
            return Functions(none.astype(bool), none, none)
        at = np.searchsorted(self.starts, addresses, "right") - 1
        last = len(self.starts) - 1
        starts, code_ends = self.starts[np.maximum(at, 0)], self.code.ends_of(addresses)
        following = np.where(at < last, self.starts[np.clip(at + 1, 0, last)], code_ends)
        ends = np.minimum(np.minimum(following, code_ends), starts + _MAX_FUNCTION_SIZE)
        return Functions((at >= 0) & (addresses < ends), starts, ends)


def code_spans(elf: ElfFile) -> list[Span]:
    """Return where the machine code lies: the executable sections, or the executable segments of a file without."""
    try:
        spans = [
            Span(s.vaddr, s.vaddr + s.size)
            for s in elf.sections
            if s.flags & _SHF_EXECINSTR and s.type != SHT_NOBITS and s.size
        ]
    except ElfError:
        spans = []
    spans = spans or [
        Span(s.vaddr, s.vaddr + s.file_size) for s in elf.segments if s.type == PT_LOAD and s.flags & PF_X
    ]
    return merge([span for span in spans if span.end < MAX_ADDRESS])[:_MAX_SPANS]


def read_code(elf: ElfFile, chunk: int, overlap: int) -> Iterator[tuple[int, bytes]]:
    """Yield all code in pieces of `chunk` bytes and `overlap` more, and let go of each piece of the file behind it."""
    for span in code_spans(elf):
        try:
            start = elf.to_offset(span.start)
        except ElfError:
            continue  # a section that is not loaded
        size = min(span.end - span.start, elf.size - start)
        for at in range(0, size, chunk):
            yield span.start + at, elf.read(start + at, min(chunk + overlap, size - at))
