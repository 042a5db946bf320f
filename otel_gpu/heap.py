"""How does memory that was freed go back to the system?

glibc keeps what threads have freed between what they still use; after something large was worked out that is most of it.
"""

from __future__ import annotations

import ctypes


def trim() -> None:
    """Give back what can be given back; other C libraries than glibc do so by themselves."""
    release = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if release is not None:
        release(ctypes.c_size_t(0))
