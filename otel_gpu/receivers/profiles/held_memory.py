"""Who holds the memory that lives, and who held it when it was the most? Allocations by address, each with its stack.

No copy is made at each new peak: what has come and gone since the last one is kept, by which the peak is found again. As exact as the
order in which calls return: of calls that threads make at the same time nobody knows which took effect first.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...signals.profiles import Stack
from ...signals.structs import Frozen


class HeldAllocation(Frozen):
    """An allocation that lives, and who made it."""

    stack: Stack
    size_bytes: int
    since_ns: int


class HeldMemory:
    """The live allocations of one program. Owned by one thread."""

    def __init__(self) -> None:
        self._by_address: dict[int, HeldAllocation] = {}
        self._held_bytes = 0
        self._peak_bytes = 0
        self._gone: list[HeldAllocation] = []
        """Freed since the peak, and part of it."""
        self._new: set[int] = set()
        """Addresses of what lives and is no part of the peak."""

    def __iter__(self) -> Iterator[HeldAllocation]:
        return iter(self._by_address.values())

    def begin(self) -> None:
        """Take what is held now for the most so far."""
        self._note_peak()

    def allocated(self, address: int, held: HeldAllocation) -> None:
        """Note an allocation; an older one at the same address is over."""
        self._end(address)
        self._by_address[address] = held
        self._new.add(address)
        self._held_bytes += held.size_bytes
        if self._held_bytes > self._peak_bytes:
            self._note_peak()

    def freed(self, address: int, when_ns: int) -> None:
        """Note a free that began at `when_ns`: what was given the address since is another allocation."""
        held = self._by_address.get(address)
        if held is not None and held.since_ns <= when_ns:
            self._end(address)

    def at_peak(self) -> Iterator[HeldAllocation]:
        """Yield what was held when that was the most."""
        yield from self._gone
        yield from (held for address, held in self._by_address.items() if address not in self._new)

    def _end(self, address: int) -> None:
        held = self._by_address.pop(address, None)
        if held is None:
            return
        self._held_bytes -= held.size_bytes
        if address in self._new:
            self._new.discard(address)
        else:
            self._gone.append(held)

    def _note_peak(self) -> None:
        self._peak_bytes = self._held_bytes
        self._gone.clear()
        self._new.clear()
