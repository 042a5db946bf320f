"""What is kept of memory: live allocations, and where they lie.

Generated from ebpf/abi/memory.h by `make generate`; do not edit.
"""

from __future__ import annotations

import numpy as np

LIVE_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("address", "<u8"),  # device or host pointer, or VMM handle
    ]
)
"""A live allocation."""
LIVE = np.dtype(
    [
        ("size", "<u8"),
        ("since_ns", "<u8"),  # CLOCK_MONOTONIC
        ("context", "<u8"),  # with which it ends; 0 when it was made before we looked
        ("type", "u1"),
        ("device", "u1"),
        ("refs", "<u2"),  # of a VMM handle
        ("maps", "<u4"),  # how often it is mapped; its memory goes with the last reference and mapping
    ]
)
RANGE_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("block", "<u8"),  # address >> level
        ("level", "<u4"),
        ("ends_beyond", "<u4"),
    ]
)
"""A range has one entry, by where it begins: its size is of one power of two, 2^(level-1) < size <= 2^level, and of
all ranges of a level at most one lies inside an aligned block of that power, and at most one begins in it and
ends beyond. An address is looked for at each level that the program has used: in its block, and in the one before
for what ends beyond that."""
PINNED_KEY = np.dtype(
    [
        ("bits", "<u4"),  # significant bits of what follows
        ("tgid", "<u4"),  # any byte order does for these two: they are always compared whole
        ("exec_id", "<u4"),
        ("address", ">u4", (2,)),  # its high half first
    ]
)
"""An aligned block of page-locked memory, in a trie."""
