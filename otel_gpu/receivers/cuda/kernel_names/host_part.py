"""Which content of a library can what is read of its kernels depend on? All but its device code, under one name.

Most of a library of kernels is code for GPUs, which nothing is read of. Hidden here, it is neither hashed nor believed: it
reads as zeros. What was hashed is checked when it is read again: whoever writes to a file meanwhile can have nothing
kept under the name of another.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right

from ....errors import ElfError
from ....sandbox.address_spans import Span, merge
from ....sandbox.elf import SHT_NOBITS, ElfFile, Source
from ....sandbox.files import FileId
from .fatbin import FATBIN_SECTIONS

_BLOCK = 64 << 10
_TOGETHER = 16
"""Blocks that are read at a time to be hashed."""
_MAX_BLOCKS = 1 << 16
"""That are hashed: what a sparse file claims takes seconds, too."""
_NAME_LENGTH = 40


class HostPart:
    """The bytes of a file that are not device code."""

    def __init__(self, file: Source, path: str) -> None:
        """Raises ElfError for what is no ELF file."""
        self._file = file
        self._path = path
        self.size: int = file.size
        self.id: FileId | None = file.id
        sections = (s for s in ElfFile.of(file, path).sections if s.name in FATBIN_SECTIONS and s.type != SHT_NOBITS)
        spans = (Span(s.offset, min(s.offset + s.size, self.size)) for s in sections)
        self._hidden = merge([span for span in spans if span.start < span.end])
        self._starts, self._ends = [s.start for s in self._hidden], [s.end for s in self._hidden]
        self._digests: dict[int, bytes] = {}
        """Of the blocks that are not all device code, once they are hashed."""
        self._last = -1, b""
        """The block that was read last, of those that were read alone."""

    @property
    def has_device_code(self) -> bool:
        """Whether there is anything that is hidden."""
        return bool(self._hidden)

    def name(self) -> str:
        """Return a hash of all that can be read from now on; empty for a file that is too large for it."""
        hidden = sum(span.end - span.start for span in self._hidden)
        if self.size - hidden > _MAX_BLOCKS * _BLOCK:
            return ""
        whole = hashlib.sha256(repr((self.size, self._hidden)).encode())
        count = -(-self.size // _BLOCK)
        for first in range(0, count, _TOGETHER):
            numbers = range(first, min(first + _TOGETHER, count))
            if self._is_hidden(numbers):
                continue
            blocks = memoryview(self._read(numbers))
            for number in numbers:
                at = (number - first) * _BLOCK
                self._digests[number] = hashlib.sha256(blocks[at : at + _BLOCK]).digest()
                whole.update(self._digests[number])
        return whole.hexdigest()[:_NAME_LENGTH]

    def read(self, offset: int, size: int) -> bytes:
        """Return what stands at an offset, less where the file ends; ElfError where it was changed since it was hashed."""
        end = min(offset + size, self.size)
        if offset >= end:
            return b""
        numbers = range(offset // _BLOCK, -(-end // _BLOCK))
        number, data = self._last
        if len(numbers) > 1 or numbers[0] != number:
            data = self._checked(numbers)
            if len(numbers) == 1:
                self._last = numbers[0], data
        first = numbers[0] * _BLOCK
        return data[offset - first : end - first]

    def _checked(self, numbers: range) -> bytes:
        data = self._read(numbers)
        blocks = memoryview(data)
        for number in numbers if self._digests else ():
            at = (number - numbers[0]) * _BLOCK
            known = self._digests.get(number)
            if known is not None and hashlib.sha256(blocks[at : at + _BLOCK]).digest() != known:
                raise ElfError(f"{self._path}: the file was changed while it was read")
        return data

    def _is_hidden(self, numbers: range) -> bool:
        at = bisect_right(self._starts, numbers.start * _BLOCK) - 1
        return at >= 0 and self._ends[at] >= min(numbers.stop * _BLOCK, self.size)

    def _read(self, numbers: range) -> bytes:
        """Return blocks with zeros in place of device code."""
        start, end = numbers.start * _BLOCK, min(numbers.stop * _BLOCK, self.size)
        if self._is_hidden(numbers):
            return bytes(end - start)
        data = self._file.read(start, end - start)
        hidden = self._hidden[bisect_right(self._ends, start) : bisect_left(self._starts, end)]
        if not hidden:
            return data
        shown = bytearray(data)
        for span in hidden:
            first, last = max(span.start - start, 0), min(span.end - start, len(shown))
            shown[first:last] = bytes(max(last - first, 0))
        return bytes(shown)
