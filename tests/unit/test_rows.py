"""What is read is what was added since, whatever order the kernel hands its table out in."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.bpf.abi.rows import COUNTED_ROW, ROW_KEY, Family
from otel_gpu.bpf.maps import possible_cpus
from otel_gpu.receivers.cuda.rows import RowReader

CPUS = possible_cpus()


class Table:
    """The kernel's side: a per-CPU table of rows."""

    def __init__(self) -> None:
        self.rows: dict[bytes, npt.NDArray[np.void]] = {}

    def add(self, tgid: int, subject: int, count: int, sum_a: int, cpu: int = 0, exec_id: int = 1) -> None:
        key = np.array([(tgid, exec_id, subject, 0, Family.LAUNCH, 0, 0, 0, 0, 0)], ROW_KEY).tobytes()
        row = self.rows.setdefault(key, np.zeros(CPUS, COUNTED_ROW))
        others = row[cpu % CPUS]["others"]
        others["count"] += count
        others["sum_a"] += sum_a

    def read(self, key: npt.DTypeLike, value: npt.DTypeLike) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
        keys = np.frombuffer(b"".join(self.rows), key)
        values = np.stack(list(self.rows.values())) if self.rows else np.zeros((0, CPUS), value)
        return keys, values

    def delete_many(self, keys: npt.NDArray[np.void]) -> int:
        return sum(self.rows.pop(key.tobytes(), None) is not None for key in keys)

    def shuffle(self) -> None:
        self.rows = dict(sorted(self.rows.items(), key=lambda item: hash((len(self.rows), item[0]))))


def read(reader: RowReader) -> dict[tuple[int, int], tuple[int, int]]:
    return {(d.tgid, d.subject): (d.count, d.sum_a) for d in reader.read()}


def test_cpus_are_added_up_and_fields_are_in_their_place() -> None:
    table = Table()
    table.add(10, 0xA, 2, 100, cpu=0)
    table.add(10, 0xA, 3, 11, cpu=1)

    (delta,) = RowReader(table).read()

    assert (delta.tgid, delta.exec_id, delta.subject, delta.family) == (10, 1, 0xA, Family.LAUNCH)
    assert (delta.count, delta.sum_a, delta.sum_b) == (5, 111, 0)


def test_calls_that_are_alike_count_with_their_two_values() -> None:
    table = Table()
    table.add(10, 0xA, 2, 100, cpu=0)
    (row,) = table.rows.values()
    row[0]["alike"], row[0]["usual"] = 3, 7 << 16 | 128
    row[-1]["alike"], row[-1]["usual"] = 5, (1 << 48) - 1 << 16 | 0xFFFF

    (delta,) = RowReader(table).read()

    first = CPUS > 1
    assert delta.count == 2 + 3 * first + 5
    assert delta.sum_a == 100 + (3 * 7) * first + 5 * ((1 << 48) - 1)
    assert delta.sum_b == 3 * 128 * first + 5 * 0xFFFF


def test_only_what_grew_is_told() -> None:
    table, still = Table(), (10, 0xB)
    reader = RowReader(table)
    table.add(10, 0xA, 1, 1)
    table.add(*still, 5, 5)
    assert read(reader) == {(10, 0xA): (1, 1), still: (5, 5)}

    table.add(10, 0xA, 4, 0)
    table.add(10, 0xC, 1, 7)
    table.shuffle()

    assert read(reader) == {(10, 0xA): (4, 0), (10, 0xC): (1, 7)}
    assert read(reader) == {}


def test_rows_of_ended_programs_are_deleted_and_those_of_others_go_on() -> None:
    table = Table()
    reader = RowReader(table)
    for program in (10, 11):
        table.add(program, 0xA, 1, 1)
        table.add(program, 0xA, 1, 1, exec_id=2)
    read(reader)

    assert reader.forget({(10, 1), (12, 1)}) == 1
    table.add(11, 0xA, 2, 2)

    assert len(table.rows) == 3
    assert read(reader) == {(11, 0xA): (2, 2)}


def test_a_row_that_comes_back_after_it_was_deleted_starts_anew() -> None:
    table = Table()
    reader = RowReader(table)
    table.add(10, 0xA, 5, 5)
    read(reader)
    reader.forget({(10, 1)})

    table.add(10, 0xA, 2, 2)

    assert read(reader) == {(10, 0xA): (2, 2)}


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 9), st.integers(0, 7)), max_size=12),
        max_size=8,
    )
)
def test_deltas_add_up_to_the_table(batches: list[list[tuple[int, int, int, int]]]) -> None:
    table = Table()
    reader = RowReader(table)
    truth: Counter[tuple[int, int]] = Counter()
    told: Counter[tuple[int, int]] = Counter()

    for batch in batches:
        for tgid, subject, count, cpu in batch:
            table.add(tgid, subject, count, 0, cpu)
            truth[tgid, subject] += count
        table.shuffle()
        for key, (count, _) in read(reader).items():
            told[key] += count

    assert told == truth
