"""How much goes through each link of a collective? By the formulas of nccl-tests (doc/PERFORMANCE.md, src/*.cu)."""

from __future__ import annotations

_OF_PARTS = frozenset({"AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter"})
"""Those whose count is that of one rank's part, of which one is where it has to be already."""


def bus_bytes(collective: str, named_bytes: float, ranks: int) -> float:
    """Return what goes through the busiest link of a collective whose callers named so many bytes, of `ranks` ranks."""
    if collective == "AllReduce":
        return named_bytes * 2 * (ranks - 1) / ranks
    if collective in _OF_PARTS:
        return named_bytes * (ranks - 1)
    return named_bytes
