"""Which of these address ranges holds an address?"""

from __future__ import annotations

from typing import Any

from ..signals.structs import Frozen

MAX_ADDRESS = 1 << 62
"""Above this are no programs; and numpy's numbers end."""


class Span(Frozen):
    """A range of addresses, the end excluded."""

    start: int
    end: int

    def __contains__(self, address: int) -> bool:
        return self.start <= address < self.end


def merge(spans: list[Span]) -> list[Span]:
    """Return spans that do not overlap: a file could name the same gigabyte in 65,536 sections."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda s: s.start):
        if merged and span.start < merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


class Spans:
    """Spans that do not overlap, for many addresses at a time."""

    def __init__(self, spans: list[Span]) -> None:
        import numpy as np

        spans = merge([span for span in spans if span.start < span.end < MAX_ADDRESS])
        self._starts: Any = np.array([span.start for span in spans], np.int64)
        self._ends: Any = np.array([span.end for span in spans], np.int64)

    def hold(self, addresses: Any) -> Any:
        """Say which addresses are in one of the spans."""
        return self.ends_of(addresses) > addresses

    def ends_of(self, addresses: Any) -> Any:
        """Return the end of the span that begins last at or before each address; 0 where none does."""
        import numpy as np

        return np.concatenate([[0], self._ends])[np.searchsorted(self._starts, addresses, "right")]
