"""What do functions of one shape have in common? The rows that CUDA's driver and HIP's runtime fill in alike."""

from __future__ import annotations

import re

from ..bpf.abi.rows import Family, MemoryType
from .hook import Hook


def fill(prototype: str, shift: int, variants: tuple[str, ...]) -> Hook:
    """Return the row of a memset of elements of 2**shift bytes."""
    return Hook(
        prototype,
        Family.MEMSET,
        "fill",
        size="n" if "size_t n" in prototype else "width",
        size2="height" if "height" in prototype else None,
        stream="stream" if "stream" in prototype else None,
        shift=shift,
        variants=variants,
    )


def alloc(prototype: str, kind: MemoryType, **more: object) -> Hook:
    """Return the row of an allocation, which writes the address to `out`."""
    return Hook(prototype, Family.ALLOC, "alloc", "alloc_done", kind=kind, out="out", **{"size": "bytes"} | more)  # type: ignore[arg-type]


def free(prototype: str, **more: object) -> Hook:
    """Return the row of a function that frees `address`."""
    return Hook(prototype, Family.FREE, "release", "release_done", out="address", **more)  # type: ignore[arg-type]


def handle(prototype: str, return_program: str, **more: str) -> Hook:
    """Return the row of a function about virtual memory's handles."""
    return Hook(prototype, Family.FREE, "handle_call", return_program, **more)  # type: ignore[arg-type]


def call(prototype: str, *, data: str | None = None, **more: object) -> Hook:
    """Return the row of a rare call, of which the agent is told; `data` points to what it shall see."""
    out = "out" if re.search(r"\bout\b", prototype) else None
    return Hook(prototype, None, "call", "call_done", out=out, size=data, **more)  # type: ignore[arg-type]


def wait(prototype: str, kind: int = 0, variants: tuple[str, ...] = ("",)) -> Hook:
    """Return the row of a call that blocks."""
    return Hook(prototype, Family.WAIT, "wait", "wait_done", kind=kind, variants=variants)
