"""Who a program is, as it shows itself.

Generated from ebpf/abi/identity.h by `make generate`; do not edit.
"""

from __future__ import annotations

import numpy as np

from .events import EVENT

IDENTITY_NAMES = 1024
"""Bytes behind which no other name begins."""
IDENTITY_NAME = 256
"""Of one directory or control group, NUL included."""
IDENTITY_ARGUMENTS = 1024
IDENTITY_ENVIRONMENT = 8192
NAMES = np.dtype(
    [
        ("text", "S1280"),
    ]
)
"""Names on a way up a tree, the lowest first, each ended by NUL."""
IDENTITY = np.dtype(
    [
        ("comm", "S16"),
        ("path_bytes", "<u4"),  # the last name only, where no way was walked
        ("groups_bytes", "<u4"),  # none there
        ("arguments_bytes", "<u4"),  # as many as there are; what does not fit is cut, what is not readable is zeros
        ("environment_bytes", "<u4"),
        ("path", NAMES),  # of its executable
        ("groups", NAMES),  # control groups: of version 2 or, where that has none, of a controller
        ("arguments", "S1024"),
        ("environment", "S8192"),
    ]
)
"""Who a program is, as the kernel knows it."""
PROGRAM_EVENT = np.dtype(
    [
        ("event", EVENT),
        ("identity", IDENTITY),
    ]
)
