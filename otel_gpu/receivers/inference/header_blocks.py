"""What do the header blocks of one direction of an HTTP/2 connection say? HPACK (RFC 7541), also after a gap.

A block refers to fields of earlier blocks by how many came since. Where blocks were not seen, those fields are not known,
but what comes after the gap is counted rightly from there on: a field is read rightly or not at all, and that is said.
"""

from __future__ import annotations

from hpack import Decoder
from hpack.exceptions import HPACKError, InvalidTableIndexError
from hpack.table import HeaderTable

from ...signals.structs import Frozen

MAX_BLOCK = 16_384
"""Bytes of a header block; servers and clients take less as a rule."""
MAX_FIELDS = 65_536
"""Bytes of all fields of a block."""
_MAX_TABLE = 65_536
"""Bytes of a table that is followed: a larger one loses what is in it."""
_MAX_VALUE = 4096
_NAMED = frozenset(
    {
        b":authority",
        b":method",
        b":path",
        b":scheme",
        b":status",
        b"content-type",
        b"grpc-status",
        b"traceparent",
        b"tracestate",
    }
)


class HeaderBlock(Frozen):
    """The named fields of a block, in their order; bytes are characters."""

    fields: tuple[tuple[str, str], ...] = ()
    is_whole: bool = True
    """False where there were fields that are not known: what is not here may yet have been there."""

    def values(self, name: str) -> tuple[str, ...]:
        """Return the values of a field."""
        return tuple(value for key, value in self.fields if key == name)

    def value(self, name: str) -> str:
        """Return the value of a field that is there exactly once, else ""."""
        values = self.values(name)
        return values[0] if len(values) == 1 else ""


UNKNOWN = HeaderBlock((), is_whole=False)


class HeaderBlocks:
    """Reads the blocks of one direction, in their order."""

    def __init__(self, *, from_start: bool = True) -> None:
        self._decoder = _decoder(has_gap=not from_start)
        self.has_gap = not from_start
        """Whether a block was not seen or not understood; what it made known is not known."""

    def read(self, block: bytes) -> HeaderBlock:
        """Return what a block says; nothing where it is malformed."""
        if len(block) > MAX_BLOCK:
            self.skip()
            return UNKNOWN
        try:
            fields = self._decoder.decode(block, raw=True)
        except (HPACKError, IndexError):
            self.skip()
            return UNKNOWN
        named, is_whole = [], True
        for name, value in fields:
            if name in _NAMED and len(value) <= _MAX_VALUE:
                named.append((bytes(name).decode(), bytes(value).decode("latin-1")))
            elif not name or name in _NAMED:
                is_whole = False
        return HeaderBlock(tuple(named), is_whole)

    def skip(self) -> None:
        """Say that a block was not seen."""
        self._decoder = _decoder(has_gap=True)
        self.has_gap = True


class _TableWithGap(HeaderTable):
    """A table of which only the latest fields are known; the others have no name."""

    def get_by_index(self, index: int) -> tuple[bytes, bytes]:
        try:
            return super().get_by_index(index)
        except InvalidTableIndexError:
            if index <= self.STATIC_TABLE_LENGTH:
                raise
            return b"", b""


def _decoder(*, has_gap: bool) -> Decoder:
    decoder = Decoder(MAX_FIELDS)
    decoder.max_allowed_table_size = _MAX_TABLE
    if has_gap:
        decoder.header_table = _TableWithGap()
        # Of what size it is was said before. In one that is too large fields stay too long, and nobody refers to them.
        decoder.header_table_size = _MAX_TABLE
    return decoder
