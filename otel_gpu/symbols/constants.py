"""Which constants are in the argument registers when a function is called?

A small simulation of straight-line code: it follows addresses and numbers from register to register, forgets every
register that anything else writes, and starts anew behind each branch or call. What it reports is therefore certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..elf import EM_AARCH64, EM_X86_64


@dataclass(frozen=True, slots=True)
class Call:
    """One call instruction, what it names as its target, and its first five arguments where they are known."""

    address: int
    target: str
    arguments: tuple[int | None, ...]


def calls(machine: int, code: bytes, vaddr: int, read_pointer: Callable[[int], int | None]) -> Iterator[Call]:
    """Yield the calls in `code`, which must begin with an instruction; `read_pointer` says what the loader wrote where."""
    # Each takes a decoder of its own machine, so only the one that is needed is loaded.
    if machine == EM_X86_64:
        from . import constants_x86

        return constants_x86.calls(code, vaddr, read_pointer)
    if machine == EM_AARCH64:
        from . import constants_arm64

        return constants_arm64.calls(code, vaddr, read_pointer)
    return iter(())
