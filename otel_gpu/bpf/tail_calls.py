"""How do programs of one object go on where those of another end? Through a map of programs that the latter jump by."""

from __future__ import annotations

from collections.abc import Mapping

from .maps import BpfMap


class TailCalls:
    """Programs in their places, while they are in use."""

    def __init__(self, places: BpfMap, programs: Mapping[int, int]) -> None:
        """Put each program, given by its descriptor, in its place."""
        self._places = places
        self._programs = dict(programs)
        self.open()

    def open(self) -> None:
        """Use them, again."""
        for place, program in self._programs.items():
            self._places.put(place.to_bytes(4, "little"), program.to_bytes(4, "little"))

    def close(self) -> None:
        """Use them no more; idempotent."""
        for place in self._programs:
            self._places.delete(place.to_bytes(4, "little"))
