"""Events: what happens seldom and cannot be summed.

Generated from ebpf/abi/events.h by `make generate`; do not edit.
"""

from __future__ import annotations

import enum

import numpy as np


class EventType(enum.IntEnum):
    """What an event says.

    a, b, c and d are given behind each.
    """

    NAMED = 1
    """A kernel got its name: handle, module, address of the name, KERNEL_NOW ; then the name."""
    FIRST_LAUNCH = 2
    """A row of launches was made: handle, row_key.kind, -, - ; then struct origin."""
    CAPTURED = 3
    """A capture recorded a node: capture, node type, handle, bytes or version, NODE_DETAIL."""
    CALL = 4
    """A call succeeded: function, what it wrote to its out parameter, id, device ; then struct arguments."""
    BUSY_PERIOD = 5
    """A busy period of which stacks were taken is over. tid is the device, time_ns the end. Submissions before it,
    and up to its end; when it was opened, its lower bound."""
    PROGRAM = 6
    """A program shows itself for the first time: when its process began (CLOCK_BOOTTIME), how often that had called
    exec, its parent, whether the way to its executable was walked ; then struct identity."""
    RECORDED = 7
    """What a driver's record says of a kernel that nobody saw being named, ahead of its EVENT_FIRST_LAUNCH: handle,
    -, -, - ; then the text, as a name."""


class NodeType(enum.IntEnum):
    """Node types, as CUgraphNodeType."""

    KERNEL = 0
    COPY = 1
    MEMSET = 2
    GRAPH = 4
    """Launched while its stream was captured: a child with what that version executes."""
    CONDITIONAL = 13
    """Has bodies, of which the device alone knows which it executes, and how often."""
    UNKNOWN = 255
    """Of a type that executes what the agent cannot tell."""


EVENT = np.dtype(
    [
        ("type", "<u4"),
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("tid", "<u4"),
        ("time_ns", "<u8"),
        ("a", "<u8"),
        ("b", "<u8"),
        ("c", "<u8"),
        ("d", "<u8"),
    ]
)
KERNEL_FORGOTTEN = 131_072
"""There was no room to remember the name: nothing tells whether it was another one before."""
NAME_SHORT = 200
"""So that most names fit a record of 256 bytes."""
NAME_LONG = 4096
"""And nearly all of the rest this one."""
NAME_HUGE = 16_384
"""Longer ones are cut."""
NAME_EVENT = np.dtype(
    [
        ("event", EVENT),
    ]
)
RECORD_STEPS = 3
"""How a driver's records lead from a handle to a text: by offsets, each of which but the last is followed as a
pointer."""
WAYS_AT_ONCE = 4
RECORD_WAY = np.dtype(
    [
        ("offsets", "<u2", (3,)),
        ("steps", "<u2"),  # 0: there is none here, nor behind it
    ]
)
RECORD_WAYS = np.dtype(
    [
        ("ways", RECORD_WAY, (4,)),
    ]
)
"""All ways that lead to names in the records of one library."""
RECORDED_ARGUMENTS = 6
RECORDED_BYTES = 256
ARGUMENTS = np.dtype(
    [
        ("values", "<u8", (6,)),
        ("data", "u1", (256,)),  # what one of them pointed to, zeros where it was not readable
    ]
)
CALL_EVENT = np.dtype(
    [
        ("event", EVENT),
        ("arguments", ARGUMENTS),
    ]
)
ORIGIN_WORDS = 256
"""Where a launch came from: what the kernel's name can be told by when nobody saw it being loaded."""
ORIGIN = np.dtype(
    [
        ("ip", "<u8"),
        ("sp", "<u8"),
        ("fp", "<u8"),
        ("saved", "<u8", (5,)),  # callee-saved registers: rbx, r12-r15; x19-x23
        ("stack", "<u8", (256,)),  # from sp on; zeros where it was not readable
    ]
)
FIRST_LAUNCH = np.dtype(
    [
        ("event", EVENT),
        ("origin", ORIGIN),
    ]
)
