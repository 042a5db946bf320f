"""Which counts wait for a name? Those of kernels that are being looked up, so that they need not be shown by handle first.

A large library takes seconds to read for the first time. What is counted meanwhile is counted then; only the programs
that have ended, and the agent's own end, cannot wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from .rows import RowDelta


class Patience:
    """Holds rows back between two reads. Owned by one thread."""

    def __init__(self, awaits_name: Callable[[RowDelta], bool]) -> None:
        self._awaits_name = awaits_name
        self._held: list[RowDelta] = []
        self._is_over = False

    def end(self) -> None:
        """Hold nothing back from now on."""
        self._is_over = True

    def sift(self, rows: Iterable[RowDelta], ended: Collection[int]) -> list[RowDelta]:
        """Return the rows that need not wait, those held back before among them; `ended` are pids that cannot."""
        held: list[RowDelta] = []
        ready: list[RowDelta] = []
        for row in (*self._held, *rows):
            waits = not self._is_over and row.tgid not in ended and self._awaits_name(row)
            (held if waits else ready).append(row)
        self._held = held
        return ready
