"""What is in a frame of HTTP/2 (RFC 9113) that is part of a header block?"""

from __future__ import annotations

import enum

from ...signals.structs import Frozen

END_HEADERS, PADDED, PRIORITY = 0x4, 0x8, 0x20


class FrameType(enum.IntEnum):
    """The types of frames of which header blocks are made."""

    HEADERS = 1
    PUSH_PROMISE = 5
    CONTINUATION = 9


class Frame(Frozen):
    """One frame."""

    type: int
    flags: int
    stream: int
    payload: bytes


def block_of(frame: Frame) -> bytes | None:
    """Return the piece of a header block that is in a frame, or None where that is malformed."""
    payload = frame.payload
    if frame.type == FrameType.CONTINUATION:
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
