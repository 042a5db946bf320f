"""What does a process publish of itself? OpenTelemetry's process context (OTEP 4719), read by a child: all of it is a stranger's word.

The payload is a `ProcessContext` of opentelemetry-proto 1.11, or the `Resource` that it was before that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import msgspec

from ..sandbox.confinement import Limits
from ..sandbox.memory import Memory, MemoryFault, MemoryFiles
from ..sandbox.work import OpenFile, work

READING_CONTEXT = Limits(answer_s=1.0, cpu_s=5, memory_bytes=256 << 20, answer_bytes=1 << 20)

_NAMES = (b"/memfd:OTEL_CTX", b"[anon_shmem:OTEL_CTX]", b"[anon:OTEL_CTX]")
_MOST = 8
"""Mappings of these names that are looked at; there should be one."""
_HEADER = struct.Struct("<8sIIQQ")
"""Signature, version, the payload's size, when it was published (0: being written), where the payload is."""
_SIGNATURE, _VERSION = b"OTEL_CTX", 2
_MAX_PAYLOAD = 64 << 10
_TRIES = 3
"""While it is being changed."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_UINT64, _INT64 = 1 << 64, 1 << 63
_MAX_VARINT = 10

Value = bytes | bool | int | float | None
"""Of an attribute; None for what resources here cannot have, as lists."""


class ProcessContext(msgspec.Struct, frozen=True):
    """What a process says of itself."""

    is_published: bool = False
    attributes: list[tuple[bytes, Value]] = []


@work(type(None), ProcessContext)
def read_process_context(files: Sequence[OpenFile], _: None) -> Iterator[ProcessContext]:
    """Yield what a process publishes: its memory's files."""
    shown = MemoryFiles.opened(files)
    looked_at = 0
    for mapping in shown.mappings():
        if mapping.name.startswith(_NAMES) and looked_at < _MOST:
            looked_at += 1
            try:
                payload = published_at(shown.memory, mapping.start)
                attributes = decode_context(payload)
            except (MemoryFault, ValueError):
                continue
            yield ProcessContext(True, attributes)
            return
    yield ProcessContext()


def published_at(memory: Memory, address: int) -> bytes:
    """Return the payload of the context at an address; MemoryFault where there is none that is whole."""
    for _ in range(_TRIES):
        header = memory.read(address, _HEADER.size)
        signature, version, size, published_ns, at = _HEADER.unpack(header)
        if signature != _SIGNATURE or version != _VERSION or size > _MAX_PAYLOAD:
            break
        if published_ns:
            payload = memory.read(at, size)
            if memory.read(address, _HEADER.size) == header:
                return payload
    raise MemoryFault(f"no context at {address:#x}")


def decode_context(payload: bytes) -> list[tuple[bytes, Value]]:
    """Return a payload's attributes; ValueError where it is neither of the messages."""
    parts = _parts(payload)
    # No name of an attribute begins with the tag that an attribute begins with.
    if any(key.startswith(b"\x0a") for part in parts for key in _parts(part)[:1]):
        parts = [attribute for part in parts for attribute in _parts(part)]
    return [named for part in parts if (named := _attribute(part))[0]]


def _attribute(message: bytes) -> tuple[bytes, Value]:
    key, value = b"", b""
    for number, kind, content in _fields(message):
        if kind == _BYTES and isinstance(content, bytes):
            key, value = (content, value) if number == 1 else (key, content) if number == 2 else (key, value)
    found: Value = None
    for number, kind, content in _fields(value):
        match number, kind, content:
            case 1, 2, bytes():
                found = content
            case 2, 0, int():
                found = content != 0
            case 3, 0, int():
                found = content - _UINT64 if content >= _INT64 else content
            case 4, 1, bytes():
                (found,) = struct.unpack("<d", content)
            case _:
                found = None
    return key, found


def _parts(message: bytes) -> list[bytes]:
    """Return the field 1 of a message, each time that it has one."""
    found = []
    for number, kind, content in _fields(message):
        if number == 1 and kind == _BYTES and isinstance(content, bytes):
            found.append(content)
    return found


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes | int]]:
    """Yield number, wire type and content of a message's fields; ValueError where it is none."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            number, at = _varint(message, at)
            yield tag >> 3, kind, number
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if size > len(message) - at:
            raise ValueError("a field that ends behind its message")
        yield tag >> 3, kind, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(message[at : at + _MAX_VARINT]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value % _UINT64, at + count + 1
    raise ValueError("a number without an end")
