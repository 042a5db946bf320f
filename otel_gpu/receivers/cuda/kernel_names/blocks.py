"""What does a basic block leave in the argument registers, whatever addresses and numbers stand in its instructions?

Compilers write the same few instructions again and again: a library registers 20,000 kernels by calls that differ only
in the addresses they pass. So a block is decoded once, with its operands left open, and known again by the bits that
are no operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ....signals.structs import Frozen

MASK32 = 0xFFFF_FFFF
MASK64 = 0xFFFF_FFFF_FFFF_FFFF

ReadPointer = Callable[[int], int | None]
"""Says what the loader wrote at an address; None where that is not known before the program runs."""


class Place(Frozen):
    """Where a block stands: it begins at index `at` of `code`, and at the link-time address `vaddr`."""

    code: bytes
    at: int
    vaddr: int
    read_pointer: ReadPointer

    def field(self, at: int, size: int, *, signed: bool = False) -> int:
        """Read a number out of the block's instructions."""
        return int.from_bytes(self.code[self.at + at : self.at + at + size], "little", signed=signed)


class Expression(Protocol):
    """What a register holds at the end of a block, in terms of the block's operands."""

    def value(self, place: Place) -> int | None:
        """Return what it is in a block that stands at `place`; None where it is not known."""


class Known(Frozen):
    """A number that no operand changes."""

    number: int

    def value(self, place: Place) -> int | None:  # noqa: ARG002 - it is the same everywhere
        return self.number


class Low32(Frozen):
    """What remains of a value in the lower half of a register."""

    whole: Expression

    def value(self, place: Place) -> int | None:
        whole = self.whole.value(place)
        return None if whole is None else whole & MASK32


class Loaded(Frozen):
    """The pointer that the loader wrote at an address."""

    address: Expression

    def value(self, place: Place) -> int | None:
        address = self.address.value(place)
        return None if address is None else place.read_pointer(address)


def low32(whole: Expression) -> Expression:
    """Return an expression of the lower half."""
    return Known(whole.number & MASK32) if isinstance(whole, Known) else Low32(whole)


class CallBlock(Frozen):
    """How a block calls: what, and what is known of the argument registers."""

    callee: Expression | None
    """None where it is not known."""
    arguments: tuple[Expression | None, ...]
    offset: int
    """Of the call instruction."""


class Block(Frozen, eq=False):
    """Straight-line code up to and with the call or branch that ends it; `call` is None where it is a branch."""

    size: int
    bits: int
    """Its bytes as a little-endian number, the operands zero."""
    mask: int
    """Which bits of it are no operand."""
    call: CallBlock | None

    def stands_at(self, code: bytes, at: int) -> bool:
        """Say whether the same instructions stand at an index of `code`."""
        return int.from_bytes(code[at : at + self.size], "little") & self.mask == self.bits


def block(code: bytes, operands: list[tuple[int, int]], call: CallBlock | None) -> Block:
    """Return the block of these bytes; `operands` has (offset, mask of 32 bits) of each part that may differ."""
    mask = (1 << 8 * len(code)) - 1
    for at, bits in operands:
        mask &= ~(bits << 8 * at)
    return Block(len(code), int.from_bytes(code, "little") & mask, mask, call)
