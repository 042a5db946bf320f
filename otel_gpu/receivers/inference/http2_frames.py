"""Which frames are in one direction of an HTTP/2 connection (RFC 9113)? Read from what was captured of it."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from .header_blocks import MAX_BLOCK

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
_MAX_PLAUSIBLE = 1 << 20
"""Bytes of a frame that is believed in where frames were lost."""
END_STREAM, END_HEADERS, PADDED, PRIORITY = 0x1, 0x4, 0x8, 0x20


class FrameType(enum.IntEnum):
    """The types that matter, and those that tell frames from other bytes."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


_KEPT = frozenset({FrameType.HEADERS, FrameType.PUSH_PROMISE, FrameType.CONTINUATION})
_OF_CONNECTION = frozenset({FrameType.SETTINGS, FrameType.PING, FrameType.GOAWAY})
_SIZES = {FrameType.PRIORITY: 5, FrameType.RST_STREAM: 4, FrameType.PING: 8, FrameType.WINDOW_UPDATE: 4}


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, or as much of its payload as is wanted."""

    type: int
    flags: int
    stream: int
    size_bytes: int
    """Of the payload."""
    payload: bytes | None = b""
    """Of frames with a header block; None where it was not captured whole, or is too large."""


class FrameReader:
    """Reads one direction. Bytes are given in their order, as many as were captured, and how many there were."""

    def __init__(self, *, has_preface: bool = False, from_start: bool = True) -> None:
        self._preface = PREFACE if has_preface and from_start else b""
        """What has to come yet."""
        self._head = b""
        self._frame: Frame | None = None
        """The one whose payload is going on."""
        self._left = 0
        self._payload: bytearray | None = None
        self.is_lost = not from_start
        """Whether it is not known where frames begin."""

    def take(self, captured: bytes, size: int | None = None) -> Iterator[Frame]:
        """Yield the frames that end in bytes that follow on each other: of `size` bytes the first ones are captured."""
        size = len(captured) if size is None else max(size, len(captured))
        if self.is_lost:
            if not _are_frames(captured, size):
                return
            self.is_lost = False
        at = 0
        if self._preface and size:
            expected = self._preface[:size]
            if captured[: len(expected)] != expected:
                self.is_lost, self._preface = True, b""
                return
            self._preface = self._preface[len(expected) :]
            at = len(expected)
        while at < size:
            if self._frame is None:
                piece = captured[at : at + HEAD_BYTES - len(self._head)]
                self._head += piece
                at += len(piece)
                if len(self._head) < HEAD_BYTES:
                    # What was not captured begins in a frame's head, unless all was.
                    self.is_lost = at < size
                    if self.is_lost:
                        self._head = b""
                    return
                self._begin()
            at = self._go_on(captured, at, size)
            if self._left == 0:
                yield self._end()

    def _begin(self) -> None:
        length, kind, flags, stream = _head(self._head)
        self._head = b""
        self._frame = Frame(kind, flags, stream, length)
        self._left = length
        self._payload = bytearray() if kind in _KEPT and length <= MAX_BLOCK else None

    def _go_on(self, captured: bytes, at: int, size: int) -> int:
        """Take what there is of a payload; return behind which byte."""
        end = min(at + self._left, size)
        if self._payload is not None:
            self._payload += captured[at:end]
            if end > len(captured):
                self._payload = None
        self._left -= end - at
        return end

    def _end(self) -> Frame:
        frame, payload = self._frame, self._payload
        self._frame = self._payload = None
        assert frame is not None
        if frame.type not in _KEPT:
            return frame
        return Frame(
            frame.type, frame.flags, frame.stream, frame.size_bytes, None if payload is None else bytes(payload)
        )


def block_of(frame: Frame) -> bytes | None:
    """Return the piece of a header block that is in a frame, or None where it was not captured or is malformed."""
    payload = frame.payload
    if payload is None or frame.type == FrameType.CONTINUATION:
        return payload
    begin, end = 0, len(payload)
    if frame.flags & PADDED:
        if not payload:
            return None
        begin, end = 1, end - payload[0]
    if frame.type == FrameType.PUSH_PROMISE:
        begin += 4
    elif frame.flags & PRIORITY:
        begin += 5
    return payload[begin:end] if begin <= end else None


def _head(data: bytes) -> tuple[int, int, int, int]:
    """Return length, type, flags and stream of a frame."""
    return int.from_bytes(data[:3], "big"), data[3], data[4], int.from_bytes(data[5:9], "big") & 0x7FFF_FFFF


def _are_frames(captured: bytes, size: int) -> bool:
    """Tell whether bytes that were written at once are whole frames, to the last byte: no others are so by chance."""
    at = 0
    while at < size:
        if at + HEAD_BYTES > len(captured):
            return False
        length, kind, _, stream = _head(captured[at : at + HEAD_BYTES])
        if kind > max(FrameType) or length > _MAX_PLAUSIBLE or captured[at + 5] & 0x80:
            return False
        if _SIZES.get(FrameType(kind), length) != length or (kind == FrameType.SETTINGS and length % 6):
            return False
        if kind != FrameType.WINDOW_UPDATE and (kind in _OF_CONNECTION) != (stream == 0):
            return False
        at += HEAD_BYTES + length
    return size > 0 and at == size
