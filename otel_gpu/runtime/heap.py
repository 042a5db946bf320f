"""How little memory does the agent hold, of what it has freed?

glibc keeps what threads have freed between what they still use, and gives every thread a heap of its own, up to eight for
each CPU.
"""

from __future__ import annotations

import ctypes
import gc
import os

_M_TRIM_THRESHOLD, _M_ARENA_MAX = -1, -8
_HEAPS = 2
_MAX_FREE_BYTES = 128 << 10
_OBJECTS = 5_000


def share() -> None:
    """Have threads share heaps, before there are any; to be called by commands, for it holds for the whole process."""
    if (limit := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        limit(_M_ARENA_MAX, _HEAPS)
        # glibc's first value; set, it stays. Otherwise each large array that is freed raises it, and the size from which
        # memory is mapped by itself and so given back at once: 2.5 to 4 MB of an agent's 84.
        limit(_M_TRIM_THRESHOLD, _MAX_FREE_BYTES)
    # What comes and goes here seldom refers to itself: to look for that at every 700 new objects, as Python does, takes a
    # third of the time when many programs come at once.
    gc.set_threshold(_OBJECTS)
    # NumPy's linear algebra would start threads with buffers of their own, and is not used.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def trim() -> None:
    """Give back what can be given back; other C libraries than glibc do so by themselves."""
    if (release := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        release(ctypes.c_size_t(0))
