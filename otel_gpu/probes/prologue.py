"""What does a probe on one instruction of a function's beginning cost, and may it sit behind that instruction?

The kernel runs the probed instruction in one of three ways: it emulates it (about 0.7 µs a hit), it single-steps a copy
of it out of line (about 9 µs on a virtual machine), or, since Linux 6.18, it replaces a 5-byte nop by a call and takes
no trap at all (about 0.45 µs).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple, Protocol


class Cost(Enum):
    """How the kernel executes the instruction under a probe, cheapest first."""

    OPTIMIZED = "optimized"
    EMULATED = "emulated"
    SINGLE_STEPPED = "single_stepped"
    NONE = "none"

    @property
    def is_fast(self) -> bool:
        """Whether a hit takes no single step."""
        return self in (Cost.OPTIMIZED, Cost.EMULATED)


class Step(NamedTuple):
    """One instruction; `passable` when arguments, stack and return address are behind it what they were before it."""

    size: int
    text: str
    cost: Cost
    passable: bool
    reason: str | None = None


class Prologue(Protocol):
    """What the site search needs to know about an instruction set."""

    def steps(self, code: bytes, vaddr: int) -> Iterator[Step]:
        """Yield the instructions from the function's entry on, until one cannot be decoded."""
        ...

    def is_branch_target(self, code: bytes, first: int, last: int) -> bool:
        """Say whether a direct branch in `code` leads to an offset in `first`..`last`."""
        ...


def words(text: str) -> frozenset[str]:
    """Read a table of mnemonics or registers, which a line of text shows better than a list."""
    return frozenset(text.split())
