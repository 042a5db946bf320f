"""How are the attributes of thousands of spans written as protobuf? By the field, and texts that recur only once.

To build messages for them is most of the work of encoding a span; this is half of it.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from ...signals.metrics import Attributes, AttributeValue
from ...signals.protobuf_fields import field, varint
from .utf8 import INT64

_ATTRIBUTE = b"\x4a"
"""Field 9 of Span, with a length before it; likewise below."""
_KEY, _VALUE = b"\x0a", b"\x12"
"""Fields 1 and 2 of KeyValue."""
_TEXT = b"\x0a"
"""Field 1 of AnyValue."""
_FALSE, _TRUE = b"\x10\x00", b"\x10\x01"
"""Field 2 of AnyValue, a varint, whole."""
_INTEGER = b"\x18"
"""Field 3 of AnyValue, a varint."""
_DOUBLE_TAG = b"\x21"
"""Field 4 of AnyValue, of eight bytes."""
_DOUBLE = struct.Struct("<d")
_UINT64 = 2**64 - 1
_MAX_INT64 = 2**63 - 1

_Key = TypeVar("_Key")

_MAX_KEPT = 4_096
_MAX_KEPT_BYTES = 256
"""Of one: at most a few MB in all, whatever programs say of themselves."""
_MAX_KEPT_INTEGER = 1_000
"""Statuses and small counts recur; others do not."""


class SpanAttributes:
    """Writes attributes as `add_attributes` makes them. Used by one thread at a time."""

    def __init__(self) -> None:
        # Apart, as 1, 1.0 and True are one key to a dict.
        self._texts: dict[tuple[str, AttributeValue], bytes] = {}
        self._integers: dict[tuple[str, AttributeValue], bytes] = {}
        """Attributes, as they were written before."""
        self._before_doubles: dict[str, bytes] = {}
        """What stands before the value of an attribute, by its key."""
        self._before_integers: dict[tuple[str, int], bytes] = {}
        """The same, by its key and the value's size."""

    def written(self, attributes: Attributes) -> bytes:
        """Return the fields of a span that hold these attributes."""
        texts, integers, doubles = self._texts, self._integers, self._before_doubles
        found = []
        for pair in attributes:
            kind = type(pair[1])
            if kind is str:
                one = texts.get(pair)
            elif kind is int:
                one = integers.get(pair) or self._integer(*pair)
            elif kind is float and (before := doubles.get(pair[0])) is not None:
                one = before + _DOUBLE.pack(pair[1])
            else:
                one = None
            found.append(self._new(*pair) if one is None else one)
        return b"".join(found)

    def _integer(self, key: str, value: AttributeValue) -> bytes | None:
        """Return the field of an integer that does not recur, where one as long was written before."""
        if not isinstance(value, int) or not _MAX_KEPT_INTEGER <= value <= _MAX_INT64:
            return None
        written = varint(value)
        before = self._before_integers.get((key, len(written)))
        return before + written if before is not None else None

    def _new(self, key: str, value: AttributeValue) -> bytes:
        one = field(_ATTRIBUTE, field(_KEY, _utf8(key)) + field(_VALUE, _any_value(value)))
        if len(one) <= _MAX_KEPT_BYTES:
            if type(value) is str:
                _keep(self._texts, (key, value), one)
            elif type(value) is int and -1 <= value < _MAX_KEPT_INTEGER:
                _keep(self._integers, (key, value), one)
            elif type(value) is int and _MAX_KEPT_INTEGER <= value <= _MAX_INT64:
                size = len(varint(value))
                _keep(self._before_integers, (key, size), one[:-size])
            elif type(value) is float:
                _keep(self._before_doubles, key, one[: -_DOUBLE.size])
        return one


def _any_value(value: AttributeValue) -> bytes:
    if isinstance(value, str):
        return field(_TEXT, _utf8(value))
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, float):
        return _DOUBLE_TAG + _DOUBLE.pack(value)
    if value in INT64:
        return _INTEGER + varint(value & _UINT64)
    return field(_TEXT, _utf8(str(value)))


def _utf8(text: str) -> bytes:
    return text.encode(errors="replace")


def _keep(known: dict[_Key, bytes], key: _Key, written: bytes) -> None:
    if len(known) >= _MAX_KEPT:
        known.clear()
    known[key] = written
