"""Who holds the memory that lives? Allocations by address, each with the stack that made it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...signals.profiles import Stack


@dataclass(frozen=True, slots=True)
class HeldAllocation:
    """An allocation that lives, and who made it."""

    stack: Stack
    size_bytes: int
    since_ns: int


class HeldMemory:
    """The live allocations of one program. Owned by one thread."""

    def __init__(self) -> None:
        self._by_address: dict[int, HeldAllocation] = {}

    def __iter__(self) -> Iterator[HeldAllocation]:
        return iter(self._by_address.values())

    def allocated(self, address: int, held: HeldAllocation) -> None:
        """Note an allocation; an older one at the same address is over."""
        self._by_address[address] = held

    def freed(self, address: int, when_ns: int) -> None:
        """Note a free that began at `when_ns`: what was given the address since is another allocation."""
        held = self._by_address.get(address)
        if held is not None and held.since_ns <= when_ns:
            del self._by_address[address]
