"""What code lies at an address? For those who look at the functions of a file one after the other."""

from __future__ import annotations

import bisect

from ....errors import ElfError
from ....sandbox.elf import ElfFile
from .functions import code_spans

_PIECE = 256 << 10
_MAX_BYTES = 64 << 20  # torch's kernels take 8 MiB
_MAX_READ = 1 << 30


class CodeBytes:
    """The code of one file, as much of it as one file may cost."""

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._left = _MAX_BYTES
        self._left_to_read = _MAX_READ
        self._spans = code_spans(elf)
        self._starts = [span.start for span in self._spans]
        self._piece = b""
        self._piece_start = 0
        self.refused = 0
        """How often there was no code, or too much had been asked for."""

    def holds(self, address: int) -> bool:
        """Say whether there is code at an address."""
        at = bisect.bisect_right(self._starts, address) - 1
        return at >= 0 and address in self._spans[at]

    def read(self, start: int, end: int) -> bytes:
        """Return the code from one address to another; nothing where it is not to be had."""
        self._left -= end - start
        if self._left < 0 or not self._holds_piece(start, end):
            self.refused += 1
            return b""
        return self._piece[start - self._piece_start : end - self._piece_start]

    def _holds_piece(self, start: int, end: int) -> bool:
        if self._piece_start <= start and end <= self._piece_start + len(self._piece):
            return True
        # What is asked for next mostly follows, so more is read than is asked for.
        size = max(end - start, _PIECE)
        self._left_to_read -= size
        if self._left_to_read < 0:
            return False
        try:
            offset = self._elf.to_offset(start)
            piece = self._elf.peek(offset, size)
        except ElfError:
            return False
        self._piece, self._piece_start = piece, start
        return len(piece) >= end - start
