"""Where does the body of an HTTP/1 message end? Told by sizes, and by the bytes between chunks where it has chunks."""

from __future__ import annotations

import enum
import re

from .http1_heads import Framing

MAX_CHUNK_LINE = 4096
"""Bytes of the line before a chunk, with its extensions."""
MAX_TRAILERS = 1 << 16
_MAX_DIGITS = 15
"""Hexadecimal digits of a chunk's size."""
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(?:;[^\r\n\0]*)?\Z")


class _At(enum.Enum):
    """Where in a body the next byte stands."""

    DATA = enum.auto()
    SIZE = enum.auto()
    """In the line before a chunk."""
    AFTER_CHUNK = enum.auto()
    TRAILERS = enum.auto()
    UNTIL_CLOSE = enum.auto()
    END = enum.auto()
    LOST = enum.auto()


class Body:
    """Follows one body. Bytes are given in their order, each time as many as were captured, and how many there were.

    With `skips_line_ends` a line end that has to stand behind a chunk need not have been captured: for what the observed
    server sends itself. What strangers send it has to be read, since they may mean it to be misread.
    """

    __slots__ = ("_at", "_chunked", "_left", "_line", "_skips", "_trailers", "body_bytes", "chunks")

    def __init__(self, framing: Framing, length: int | None = None, *, skips_line_ends: bool = False) -> None:
        self._skips = skips_line_ends
        self._chunked = framing is Framing.CHUNKED
        self._left = length or 0
        """Bytes of data before the next thing."""
        self._line = b""
        self._trailers = 0
        self.body_bytes = 0
        """Of data so far, what frames chunks left out."""
        self.chunks = 0
        """Chunks that have begun, the empty one at the end left out."""
        match framing:
            case Framing.NONE:
                self._at = _At.END
            case Framing.LENGTH:
                self._at = _At.DATA if self._left else _At.END
            case Framing.CHUNKED:
                self._at = _At.SIZE
            case Framing.UNTIL_CLOSE | Framing.TUNNEL:
                self._at = _At.UNTIL_CLOSE
            case Framing.UNKNOWN:
                self._at = _At.LOST

    @property
    def is_complete(self) -> bool:
        """Tell whether all of it was there."""
        return self._at is _At.END

    @property
    def is_lost(self) -> bool:
        """Tell whether its end can no longer be found, but by the connection's end."""
        return self._at is _At.LOST

    def take(self, captured: bytes, size: int | None = None) -> int:
        """Take bytes that follow on each other; return how many of them are this body's.

        Of `size` bytes the first ones are in `captured`; the others are not known.
        """
        size = len(captured) if size is None else max(size, len(captured))
        at = 0
        while at < size and self._at not in {_At.END, _At.LOST}:
            at = self._step(captured, at, size)
        return size if self._at is _At.LOST else at

    def close(self) -> bool:
        """Say that the connection ends; return whether the body was whole."""
        if self._at is _At.UNTIL_CLOSE:
            self._at = _At.END
        return self.is_complete

    def _step(self, captured: bytes, at: int, size: int) -> int:
        """Go on from a byte; return behind which one it is decided."""
        if self._at is _At.UNTIL_CLOSE:
            self.body_bytes += size - at
            return size
        if self._at is _At.DATA:
            taken = min(self._left, size - at)
            self._left -= taken
            self.body_bytes += taken
            if not self._left:
                self._at = _At.AFTER_CHUNK if self._chunked else _At.END
            return at + taken
        if at >= len(captured):
            return self._pass_over(at, size)
        return self._take_line(captured, at)

    def _pass_over(self, at: int, size: int) -> int:
        """Go on where nothing was captured."""
        if self._at is not _At.AFTER_CHUNK or not self._skips:
            self._at = _At.LOST
            return size
        passed = min(2 - len(self._line), size - at)
        self._line += b"\r\n"[len(self._line) :][:passed]
        if len(self._line) == 2:
            self._line, self._at = b"", _At.SIZE
        return at + passed

    def _take_line(self, captured: bytes, at: int) -> int:
        """Take a line of the framing, or what there is of it."""
        end = captured.find(b"\n", at, at + MAX_CHUNK_LINE)
        piece = captured[at : end + 1 if end >= 0 else at + MAX_CHUNK_LINE]
        self._line += piece
        if len(self._line) > MAX_CHUNK_LINE:
            self._at = _At.LOST
        elif end >= 0:
            line, self._line = self._line, b""
            if line.endswith(b"\r\n") and b"\r" not in line[:-2]:
                self._read_line(line[:-2], len(line))
            else:
                # Where a lone line feed ends a line for one, and not for another, what follows is another request.
                self._at = _At.LOST
        return at + len(piece)

    def _read_line(self, line: bytes, size: int) -> None:
        if self._at is _At.AFTER_CHUNK:
            self._at = _At.LOST if line else _At.SIZE
        elif self._at is _At.TRAILERS:
            self._trailers += size
            if not line:
                self._at = _At.END
            elif self._trailers > MAX_TRAILERS:
                self._at = _At.LOST
        else:
            match = _CHUNK_LINE.match(line)
            if match is None or len(match[1]) > _MAX_DIGITS:
                self._at = _At.LOST
                return
            self._left = int(match[1], 16)
            self.chunks += bool(self._left)
            self._at = _At.DATA if self._left else _At.TRAILERS
