"""A stack: its frames, why it ends, and where its walk is.

Generated from ebpf/abi/stacks.h by `make generate`; do not edit.
"""

from __future__ import annotations

import enum

import numpy as np


class Stop(enum.IntEnum):
    """Why a stack ends where it ends."""

    NONE = 0
    OUTERMOST = 1
    """It is complete."""
    FULL = 2
    """Deeper than MAX_FRAMES."""
    NO_MAPPING = 3
    """An address in no known mapping."""
    NO_TABLE = 4
    """The mapping's table is not there, or not yet."""
    NO_ROW = 5
    """No unwinding information for the address."""
    UNSUPPORTED = 6
    """A rule that rows cannot say."""
    UNREADABLE = 7
    """Stack memory could not be read."""
    STUCK = 8
    """The stack pointer would not rise."""
    CHAIN_ENDED = 9
    """More eval loops than Python frames: a greenlet."""
    FRAME_POINTER = 10
    """Code without tables and without frame pointers."""
    UNKNOWN_PROCESS = 11
    """The agent has yet to learn of the process."""
    NO_CODE = 12
    """The return address leads to no code: the callers are unknown."""
    STATES = 13
    """More interpreters or thread states than are looked at."""
    NO_OWNER = 14
    """An eval loop of no interpreter's thread state."""
    FRAMES_LEFT = 15
    """Fewer eval loops than Python frames."""


STOP_COUNT = 16


class FrameKind(enum.IntEnum):
    """What a frame is of."""

    NATIVE = 1
    """A: address, b: file; not the leaf: a return address."""
    PYTHON = 2
    """See struct frame."""
    EXACT = 3
    """As FRAME_NATIVE, but the very instruction."""
    MADE = 4
    """As FRAME_NATIVE, of code without a file."""


FRAME_KIND_SHIFT = 56
FRAME_OWNER_SHIFT = 48
FRAME = np.dtype(
    [
        ("a", "<u8"),
        ("b", "<u8"),
    ]
)
"""A native frame: a is the address, b is kind << 56 | file. A Python frame: a is the code object, with the upper
half of its checksum in the 16 bits that no address of a program uses; b is kind << 56 | owner << 48 | the
checksum's lower half << 32 | the instruction: an int f_lasti as it is, or bytes from the first code unit."""
FRAME_CHECKSUM_A = 48
FRAME_CHECKSUM_B = 32
WORDS_AT_ONCE = 16
MAX_AHEAD = 128
MAX_FRAMES = 512
"""CPython up to 3.10 has four native frames for each Python frame."""
PY_CURSOR = np.dtype(
    [
        ("state", "<u8"),
        ("frame", "<u8"),  # the innermost; 0: the chain has ended
        ("cframe", "<u8"),  # up to 3.12: what marks its eval activation
    ]
)
"""What is still to come of a thread state's Python frames."""
PY_ASIDE = 4
"""Thread states that take turns in one stack, but for the present one."""
PY_SEARCH = np.dtype(
    [
        ("interp", "<u8"),
        ("next", "<u8"),  # thread state
        ("next_aside", "<u4"),
        ("looked_at", "<u4"),
        ("swapped", "<u4"),  # which one laid aside has changed places with the one that is tried
        ("is_fresh", "<u4"),
        ("aside", PY_CURSOR, (4,)),
    ]
)
UNWIND_STATE = np.dtype(
    [
        ("pc", "<u8"),
        ("sp", "<u8"),
        ("fp", "<u8"),
        ("here", PY_CURSOR),
        ("low", "<u8"),  # the stack pointer in the activation that was left; sp is then its end
        ("marker", "<u8"),  # what lies in the stack of the activation whose frames were taken; 0: not known
        ("group_frame", "<u8"),  # as here.frame, and the sample's frames, were before these
        # what lies in the stack as the return address of calls whose return is probed; 0: there are none
        ("trampoline", "<u8"),
        ("group_at", "<u4"),
        ("activations", "<u4"),  # of the eval loop, so far
        ("is_left", "<u4"),  # the activation is left already: no need to do so when its frames are taken
        ("interpreters", "<u4"),
        ("mapping", "<u4"),  # the last one found, absolute: calls mostly stay in one file
        ("is_return", "<u4"),  # pc is a return address: the call is before it
        ("phase", "<u4"),
        ("pad", "<u4"),
    ]
)
"""Where a walk is."""
WALK_WORDS = np.dtype(
    [
        ("word", "<u8", (16,)),
    ]
)
SAMPLE_OWNER = np.dtype(
    [
        ("request", "<u8"),  # its number; 0: none
        ("holder", "<u8"),  # whose end decides whether it was for that request: struct python_context.number; 0: it was
        ("trace", "<u8", (2,)),  # of the program's own span that is current,
        ("span", "<u8"),  # 0: there is none
    ]
)
"""Whose the work is that a stack shows, as far as it is known when the stack is taken. Ids are as on the wire."""
STACK_SAMPLE = np.dtype(
    [
        ("type", "<u4"),
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("tid", "<u4"),
        ("time_ns", "<u8"),
        ("value", "<u8"),
        ("count", "<u8"),  # how many calls it stands for
        ("subject", "<u8"),
        ("latest", "<u8"),  # what of the value is the last call's, whose the stack is: the rest is of those before it
        ("owner", SAMPLE_OWNER),  # of the last call
        ("function", "<u2"),
        ("stop", "u1"),  # enum stop
        ("ahead", "u1"),
        ("frames", "<u4"),
        # Leaf first; behind them, of a stack that ends for want of a table, `ahead` further return addresses that lie
        # on it in code without one: b is 0.
        ("frame", FRAME, (512,)),
        # What only the walk needs. Here, because its own stack is small, and because the verifier follows what stands
        # there: it would look at a walk's code once for every combination of values.
        ("at", UNWIND_STATE),
        ("search", PY_SEARCH),
        ("words", WALK_WORDS),  # of a Python frame, or of the stack
    ]
)
