"""Which frame description is an address's? The sorted table in `.eh_frame_hdr`, by which a part of a file can be compiled."""

from __future__ import annotations

import struct

import numpy as np

from ...sandbox.elf import PT_GNU_EH_FRAME, ElfFile
from ...signals.structs import Frozen
from .records import FrameSection, Ints

_HEADER = struct.Struct("<BBBBiI")
_SORTED_TABLE = (1, 0x03, 0x3B)
"""Version 1, a udata4 count, rows of data-relative sdata4 (LSB 5.0, "Exception Frame Header")."""
_MAX_FUNCTIONS = 4 << 20
_ROW = np.dtype([("start", "<i4"), ("record", "<i4")])


class FrameIndex(Frozen):
    """The functions of a file, sorted: their first addresses, and where in the section their descriptions are."""

    starts: Ints
    offsets: Ints

    @classmethod
    def of(cls, elf: ElfFile, section: FrameSection) -> FrameIndex | None:
        """Read the table; None where the file has none of the usual form."""
        for segment in elf.segments:
            if segment.type != PT_GNU_EH_FRAME or segment.file_size < _HEADER.size:
                continue
            version, _, count_form, row_form, _, count = _HEADER.unpack(elf.read(segment.offset, _HEADER.size))
            if (version, count_form, row_form) != _SORTED_TABLE or not 0 < count <= _MAX_FUNCTIONS:
                return None
            rows = np.frombuffer(elf.read(segment.offset + _HEADER.size, _ROW.itemsize * count), _ROW)
            starts = rows["start"].astype(np.int64) + segment.vaddr
            if (starts[1:] < starts[:-1]).any():
                return None
            return cls(starts, rows["record"].astype(np.int64) + segment.vaddr - section.vaddr)
        return None

    def around(self, address: int, functions: int) -> tuple[int, int]:
        """Return the first and the last but one of the functions around an address, by their numbers."""
        at = int(np.searchsorted(self.starts, address, side="right")) - 1
        first = max(at - functions // 2, 0)
        return first, min(first + functions, self.starts.size)
