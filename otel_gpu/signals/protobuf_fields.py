"""How does a protobuf message say a number of any size, and a field that has a length?

It needs the standard library alone: programs of any CPython import it to tell observers of themselves.
"""

from __future__ import annotations

_MOST_SIZES = 1_024
"""Few messages here are longer, and nothing in one."""


def varint(number: int) -> bytes:
    """Write a number of at least 0, seven bits a byte, the lowest first."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


_SIZES = [varint(number) for number in range(_MOST_SIZES)]


def field(tag: bytes, body: bytes) -> bytes:
    """Write a field that has a length, after its tag."""
    size = len(body)
    return tag + (_SIZES[size] if size < _MOST_SIZES else varint(size)) + body
