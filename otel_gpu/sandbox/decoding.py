"""How is a message turned into values of a type? By a decoder for each type, which are made one at a time.

msgspec learns a type when it first meets it, and has threads that meet it at the same moment use what is half learnt: the
whole process crashes then. The slower a host, the likelier.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_lock = threading.Lock()
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def decode(message: bytes | bytearray | memoryview, kind: type[T]) -> T:
    """Return the value of a type that a message in MessagePack holds; msgspec.MsgspecError or ValueError if it holds none."""
    decoder = _decoders.get(kind)
    if decoder is None:
        with _lock:
            # Of types that it consists of, others may know as well: all are learnt under one lock.
            decoder = _decoders.setdefault(kind, msgspec.msgpack.Decoder(kind))
    value: T = decoder.decode(message)
    return value
