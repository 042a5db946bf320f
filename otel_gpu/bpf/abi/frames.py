"""Header blocks of HTTP/2, whose compression only the agent follows.

Generated from ebpf/abi/frames.h by `make generate`; do not edit.
"""

from __future__ import annotations

import enum

import numpy as np

FRAME_PIECE_BYTES = 768
"""Bytes of a frame that are told at once."""
FRAME_TOLD_MOST = 16_384
"""Of one frame: what is longer is not told to its end."""


class FrameSide(enum.IntEnum):
    """Who sent a frame."""

    CLIENT = 0
    SERVER = 1


FRAME_SIDES = 2
FRAME_GONE = 255
"""As a type: the connection is no more."""
FRAME_PIECE = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("connection", "<u8"),  # its number
        ("request", "<u8"),  # whose stream it is; 0: none that is followed
        ("time_ns", "<u8"),
        ("number", "<u4"),  # counted by connection and side: a gap says what was lost
        ("stream", "<u4"),
        ("size", "<u4"),  # of the frame's payload
        ("at", "<u4"),  # of the piece in it
        ("bytes", "<u2"),
        ("side", "u1"),  # enum frame_side
        ("type", "u1"),
        ("flags", "u1"),
        ("pad", "u1", (3,)),
        ("payload", "S768"),  # last: what of it is used is sent
    ]
)
"""A piece of a frame with a part of a header block."""
