"""A program that has very many rows grow has most of them told together, and costs no other program any."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otel_gpu.bpf.abi.rows import ROW_KEY, Family
from otel_gpu.receivers.cuda.cardinality import MOST, RowCardinality

MANY, OTHER = (10, 1), (11, 1)


def keys(program: tuple[int, int], count: int) -> npt.NDArray[np.void]:
    return np.array(
        [(*program, 0x1000 + n, n % 3, Family.LAUNCH, 0, 0, 0, 5, 6) for n in range(count)],
        ROW_KEY,
    )


def test_few_rows_are_told_as_they_are() -> None:
    cardinality, few = RowCardinality(), keys(MANY, MOST)
    grown = np.ones((MOST, 3), np.uint64)

    told, sums = cardinality.fold(few, grown)

    assert told.tobytes() == few.tobytes()
    assert sums is grown
    assert cardinality.take() == {}


def test_of_too_many_rows_the_most_important_rows_are_told_and_the_rest_together() -> None:
    cardinality = RowCardinality()
    rows = np.concatenate([keys(MANY, 3 * MOST), keys(OTHER, 10)])
    grown = np.ones((len(rows), 3), np.uint64)
    grown[7, 0], grown[9, 1] = 1000, 1000

    told, sums = cardinality.fold(rows, grown)

    by_program = {p: (told["tgid"] == p[0]) for p in (MANY, OTHER)}
    for program, mine in by_program.items():
        assert sums[mine].sum(axis=0).tolist() == grown[rows["tgid"] == program[0]].sum(axis=0).tolist()
    assert np.count_nonzero(by_program[OTHER]) == 10
    assert np.count_nonzero(by_program[MANY]) <= MOST + 1
    assert {0x1007, 0x1009, 0} <= set(told["subject"][by_program[MANY]].tolist())
    folded = int(sums[by_program[MANY] & (told["subject"] == 0), 0].sum())
    assert cardinality.take() == {MANY: folded}
    assert cardinality.take() == {}
