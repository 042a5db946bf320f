"""Which constants are in the argument registers when a function is called?

A small simulation of straight-line code: it follows addresses and numbers from register to register, forgets every
register that anything else writes, and starts anew behind each branch or call. What it reports is therefore certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....sandbox.address_spans import MAX_ADDRESS
from ....sandbox.elf import EM_AARCH64, EM_X86_64
from ....signals.structs import Frozen
from .blocks import Block, CallBlock, Loaded, Place, ReadPointer

_FIRST_PIECE, _PIECE_GROWTH = 80, 4
_MAX_KEPT_SIZE = 256
"""Bytes; longer blocks are not written twice."""
_MAX_KEPT = 32
_MAX_FOLLOWERS = 4 * _MAX_KEPT
_LONGEST_INSTRUCTION = 15
_COST_OF_KNOWN = 8
"""What a block that is known again costs of the budget; ten times less than one that is decoded."""
_UNLIMITED = 1 << 62
UNKNOWN = -1
"""Stands for a function that is not known."""


class CallSite(Frozen):
    """One call instruction; what is known of it is worked out when it is asked for."""

    call: CallBlock
    place: Place

    @property
    def address(self) -> int:
        """Where the call instruction is."""
        return self.place.vaddr + self.call.offset

    @property
    def callee(self) -> int:
        """The address of the function, or of the pointer to it where the loader finds it; UNKNOWN where it is neither."""
        callee = self.call.callee
        if callee is None:
            return UNKNOWN
        address = callee.value(self.place)
        if address is None and isinstance(callee, Loaded):
            address = callee.address.value(self.place)
        return UNKNOWN if address is None or not 0 <= address < MAX_ADDRESS else address

    def argument(self, number: int) -> int | None:
        """Return one of the first five arguments, counted from 0; None where it is not known."""
        expression = self.call.arguments[number]
        return None if expression is None else expression.value(self.place)


class CallReader:
    """Reads the calls in one file's code. Not for use by several threads."""

    def __init__(self, machine: int, read_pointer: ReadPointer, max_decoded: int = _UNLIMITED) -> None:
        """Decode at most so many bytes; blocks that are known again cost little of that."""
        self._decode = _decoder(machine)
        self._read_pointer = read_pointer
        self._left = max_decoded
        self._kept: list[Block] = []
        self._followers: dict[Block, Block] = {}
        self.refused = 0
        """How often something was not read for want of budget."""

    @property
    def is_spent(self) -> bool:
        """Whether the budget is used up."""
        return self._left < 0

    def calls(self, code: bytes, vaddr: int, at: int = 0) -> Iterator[CallSite]:
        """Yield the calls from index `at` of `code` on, where an instruction must begin; `vaddr` is the code's address."""
        before: Block | None = None
        while at < len(code):
            block = self._block(code, at, vaddr, before)
            if block is None:
                return
            if block.call is not None:
                yield CallSite(block.call, Place(code, at, vaddr + at, self._read_pointer))
            before = block
            at += block.size

    def _block(self, code: bytes, at: int, vaddr: int, before: Block | None) -> Block | None:
        self._left -= _COST_OF_KNOWN
        follower = self._followers.get(before) if before is not None else None
        if self.is_spent:
            self.refused += 1
            return None
        if follower is not None and follower.stands_at(code, at):
            return follower
        block = next((known for known in self._kept if known.stands_at(code, at)), None)
        if block is not None:
            self._kept.remove(block)
        else:
            block = self._decoded(code, at, vaddr)
            if block is None or block.size > _MAX_KEPT_SIZE:
                return block
        self._kept.insert(0, block)
        del self._kept[_MAX_KEPT:]
        if before is not None:
            if len(self._followers) >= _MAX_FOLLOWERS:
                self._followers.clear()
            self._followers[before] = block
        return block

    def _decoded(self, code: bytes, at: int, vaddr: int) -> Block | None:
        """Decode a block. The decoder takes all that it is given, so it is given little first."""
        size = _FIRST_PIECE
        while True:
            piece = code[at : at + size]
            self._left -= len(piece)
            if self.is_spent:
                self.refused += 1
                return None
            found = self._decode(piece, vaddr + at)
            if isinstance(found, Block):
                return found
            if at + size >= len(code) or size - found > _LONGEST_INSTRUCTION:
                return None
            size *= _PIECE_GROWTH


def _decoder(machine: int) -> Callable[[bytes, int], Block | int]:
    # Each takes a decoder of its own machine, so only the one that is needed is loaded.
    if machine == EM_X86_64:
        from . import constants_x86

        return constants_x86.decode
    if machine == EM_AARCH64:
        from . import constants_arm64

        return constants_arm64.decode
    return lambda _code, _vaddr: 0
