"""Which rows are pending? Those of kernels whose names are being looked up, so that they need not be shown by handle first.

A large library takes seconds to read for the first time. What is counted meanwhile is counted then; only the programs
that have ended, and the agent's own end, cannot wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import fields, replace
from operator import attrgetter

from .rows import RowDelta

_SUMS = ("count", "sum_a", "sum_b")
_KEY = tuple(field.name for field in fields(RowDelta) if field.name not in _SUMS)
_key_of, _sums_of = attrgetter(*_KEY), attrgetter(*_SUMS)


class PendingRows:
    """Keeps pending rows between two reads: each once, however often it is read meanwhile. Owned by one thread."""

    def __init__(self, awaits_name: Callable[[RowDelta], bool]) -> None:
        self._awaits_name = awaits_name
        self._held: dict[tuple[int, ...], RowDelta] = {}
        self._has_ended = False

    def end(self) -> None:
        """Keep nothing pending from now on."""
        self._has_ended = True

    def ready(self, rows: Iterable[RowDelta], ended: Collection[int]) -> list[RowDelta]:
        """Return the rows that need not wait, those that were pending before among them; `ended` are pids that cannot."""
        held: dict[tuple[int, ...], RowDelta] = {}
        ready: list[RowDelta] = []
        for row in (*self._held.values(), *rows):
            if not self._has_ended and row.tgid not in ended and self._awaits_name(row):
                _add(held, row)
            else:
                ready.append(row)
        self._held = held
        return ready


def _add(held: dict[tuple[int, ...], RowDelta], row: RowDelta) -> None:
    key = _key_of(row)
    if (before := held.get(key)) is not None:
        row = replace(row, **{n: a + b for n, a, b in zip(_SUMS, _sums_of(before), _sums_of(row), strict=True)})
    held[key] = row
