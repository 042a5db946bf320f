"""A program that has very many rows grow has most of them told together, and costs no other program any."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otel_gpu.abi import ROW_KEY, Family
from otel_gpu.receivers.cuda.crowds import MOST, Crowds

CROWD, OTHER = (10, 1), (11, 1)


def keys(program: tuple[int, int], count: int) -> npt.NDArray[np.void]:
    return np.array(
        [(*program, 0x1000 + n, n % 3, Family.LAUNCH, 0, 0, 0, 5, 6) for n in range(count)],
        ROW_KEY,
    )


def test_few_rows_are_told_as_they_are() -> None:
    crowds, few = Crowds(), keys(CROWD, MOST)
    grown = np.ones((MOST, 3), np.uint64)

    told, sums = crowds.fold(few, grown)

    assert told.tobytes() == few.tobytes()
    assert sums is grown
    assert crowds.take() == {}


def test_of_a_crowd_the_most_important_rows_are_told_and_the_rest_together() -> None:
    crowds = Crowds()
    rows = np.concatenate([keys(CROWD, 3 * MOST), keys(OTHER, 10)])
    grown = np.ones((len(rows), 3), np.uint64)
    grown[7, 0], grown[9, 1] = 1000, 1000

    told, sums = crowds.fold(rows, grown)

    by_program = {p: (told["tgid"] == p[0]) for p in (CROWD, OTHER)}
    for program, mine in by_program.items():
        assert sums[mine].sum(axis=0).tolist() == grown[rows["tgid"] == program[0]].sum(axis=0).tolist()
    assert np.count_nonzero(by_program[OTHER]) == 10
    assert np.count_nonzero(by_program[CROWD]) <= MOST + 1
    assert {0x1007, 0x1009, 0} <= set(told["subject"][by_program[CROWD]].tolist())
    folded = int(sums[by_program[CROWD] & (told["subject"] == 0), 0].sum())
    assert crowds.take() == {CROWD: folded}
    assert crowds.take() == {}
