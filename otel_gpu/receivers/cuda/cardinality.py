"""How many rows of a program are looked at one by one? So many at the most: those that count most; the others together.

A program may have some 32,000 rows of its own, and could have each grow every time that somebody looks. To name and rank so
many would take the agent seconds, again and again, and nobody is shown more than the top kernels anyway.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from ...bpf.abi.rows import Family
from ...discovery.program_id import ProgramId

MOST = 4096
"""Rows of one program that are looked at one by one each time: half of them by their calls, half by blocks or bytes."""

_Sums = npt.NDArray[np.uint64]


class RowCardinality:
    """Keeps how many rows are told apart bounded, and counts those that are not."""

    def __init__(self) -> None:
        self._folded: Counter[ProgramId] = Counter()

    def fold(self, keys: npt.NDArray[np.void], grown: _Sums) -> tuple[npt.NDArray[np.void], _Sums]:
        """Return rows and what they grew by, with those of a program with too many without their subject, but for the most important."""
        if len(keys) <= MOST:
            return keys, grown
        programs = keys["tgid"].astype(np.uint64) << np.uint64(32) | keys["exec_id"]
        numbers, which, counts = np.unique(programs, return_inverse=True, return_counts=True)
        if counts.max() <= MOST:
            return keys, grown
        keys, rest = keys.copy(), np.zeros(len(keys), bool)
        for at in np.nonzero(counts > MOST)[0].tolist():
            mine = np.nonzero(which == at)[0]
            important = {*_largest(grown[mine, 0]), *_largest(grown[mine, 1])}
            others = np.delete(mine, list(important))
            rest[others] = True
            self._folded[ProgramId(*divmod(int(numbers[at]), 1 << 32))] += int(grown[others, 0].sum())
        keys["subject"][rest] = 0
        keys["function"][rest & (keys["family"] == Family.LAUNCH)] = 0
        folded, of = np.unique(keys[rest].view(np.dtype((np.void, keys.itemsize))), return_inverse=True)
        sums: _Sums = np.zeros((len(folded), grown.shape[1]), np.uint64)
        np.add.at(sums, of, grown[rest])
        return np.concatenate([keys[~rest], folded.view(keys.dtype)]), np.concatenate([grown[~rest], sums])

    def take(self) -> dict[ProgramId, int]:
        """Return how many calls were counted without their subject since the last time, by program."""
        taken, self._folded = self._folded, Counter()
        return dict(taken)


def _largest(values: npt.NDArray[np.uint64]) -> list[int]:
    most = min(MOST // 2, len(values))
    found: list[int] = np.argpartition(values, len(values) - most)[len(values) - most :].tolist()
    return found
