"""The attach cookie: what a program must know about the function it sits on.

Generated from ebpf/abi/cookies.h by `make generate`; do not edit.
"""

from __future__ import annotations

import enum

COOKIE_KIND_BIT = 16
"""Copy kind, memory type."""
COOKIE_FLAGS_BIT = 24
COOKIE_STREAM_BIT = 32
"""Argument number of the stream."""
COOKIE_HOST_BIT = 36
"""Argument number of the host pointer."""
COOKIE_SIZE_BIT = 40
"""Argument number of the size in elements, or of the struct."""
COOKIE_SIZE2_BIT = 44
"""Argument number of its second factor."""
COOKIE_OUT_BIT = 48
"""Argument number of the address, or of where it will be written."""
COOKIE_SHIFT_BIT = 52
"""Log2 of the element size."""
COOKIE_KIND_AT_BIT = 56
"""Argument number of the copy kind, where it is one."""
COOKIE_LIBRARY_BIT = 60
"""Number of the library that the function is in."""
ARGUMENT_NONE = 15
LIBRARIES = 16
"""Numbers of libraries; a further one has that of an earlier one."""


class WaitKind(enum.IntEnum):
    """What a waiting or asking call is about, in its kind."""

    CONTEXT = 0
    STREAM = 1
    EVENT = 2


CALL_ADDS_NODE = 2
"""Kind of a recorded call: its data begins with the node's type."""
CALL_RESETS_PRIMARY = 3
"""Kind of a recorded call: its id is the device's primary context, 0 if unknown."""
CALL_RELEASES_PRIMARY = 4
"""The same, when that was the last reference; else the call is not told of."""
CALL_ENDS_CAPTURE = 1
"""Kind of a recorded call: its stream's capture is over, even if it fails."""
CALL_UNLOADS = 6
"""Kind of a recorded call: handles of kernels may be given out again."""
CALL_ALIASES = 5
"""Kind of a recorded call: what it returns is the kernel in its second argument."""
CALL_DESTROYS_EXEC = 7
"""Kind of a recorded call: the executable graph in its first argument is no more."""
CALL_DESTROYS_GREEN = 8
"""The same as CALL_RELEASES_PRIMARY, of the device of the green context in its first argument."""
CONTEXT_GREEN = 1
"""Kind of a call that makes a context: a green one, which retains its device's primary one."""
FLAG_PER_THREAD = 1
"""Stream 0 means the thread's own (_ptsz, _ptds)."""
FLAG_DIRECT = 2
"""The address is an argument, not a result."""
FLAG_PITCHED = 4
"""The size is *pitch times a factor, known at return."""
FLAG_RESULT = 8
"""The out parameter points to data, not to a handle."""
FLAG_EXEC = 16
"""An executable graph changes: its launches count under a new id."""
FLAG_PUSH = 32
"""The context becomes current as well."""
FLAG_INNER = 128
"""Another function of the same number may be this call's caller, and counts it."""
