"""Which counts wait for a name? Those of kernels that are being looked up, so that they need not be shown by handle first.

A large library takes seconds to read for the first time. What is counted meanwhile is counted then; only the programs
that have ended, and the agent's own end, cannot wait.
"""

from __future__ import annotations

<<<<<<< HEAD
from collections.abc import Callable, Collection, Iterable
=======
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import fields, replace
from operator import attrgetter
>>>>>>> 3272f3c (Hold back a count once, however often it is read meanwhile)

from .rows import RowDelta

_SUMS = ("count", "sum_a", "sum_b")
_KEY = tuple(field.name for field in fields(RowDelta) if field.name not in _SUMS)
_key_of, _sums_of = attrgetter(*_KEY), attrgetter(*_SUMS)


class Patience:
    """Holds rows back between two reads: each once, however often it is read meanwhile. Owned by one thread."""

    def __init__(self, awaits_name: Callable[[RowDelta], bool]) -> None:
        self._awaits_name = awaits_name
        self._held: dict[tuple[int, ...], RowDelta] = {}
        self._is_over = False

    def end(self) -> None:
        """Hold nothing back from now on."""
        self._is_over = True

<<<<<<< HEAD
    def sift(self, rows: Iterable[RowDelta], ended: Collection[int]) -> list[RowDelta]:
        """Return the rows that need not wait, those held back before among them; `ended` are pids that cannot."""
        held: list[RowDelta] = []
        ready: list[RowDelta] = []
        for row in (*self._held, *rows):
            waits = not self._is_over and row.tgid not in ended and self._awaits_name(row)
            (held if waits else ready).append(row)
        self._held = held
        return ready
=======
    def sift(self, rows: Iterable[RowDelta], ended: Collection[int]) -> Iterator[RowDelta]:
        """Yield the rows that need not wait, those held back before among them; `ended` are pids that cannot."""
        held, self._held = self._held, {}
        for source in (held.values(), rows):
            for row in source:
                if not self._is_over and row.tgid not in ended and self._awaits_name(row):
                    self._hold(row)
                else:
                    yield row

    def _hold(self, row: RowDelta) -> None:
        key = _key_of(row)
        if (before := self._held.get(key)) is not None:
            row = replace(row, **{n: a + b for n, a, b in zip(_SUMS, _sums_of(before), _sums_of(row), strict=True)})
        self._held[key] = row
>>>>>>> 3272f3c (Hold back a count once, however often it is read meanwhile)
