"""Counts wait for a name, but not for ever and not beyond the end of a program."""

from __future__ import annotations

from otel_gpu.bpf.abi.rows import Family
from otel_gpu.receivers.cuda.pending_rows import PendingRows
from otel_gpu.receivers.cuda.rows import RowDelta


def row(subject: int, count: int = 1, tgid: int = 10) -> RowDelta:
    return RowDelta(tgid, 1, subject, 0, Family.LAUNCH, 0, 0, 0, 0, 0, count, 0, 0)


def test_rows_of_a_kernel_that_is_looked_up_come_when_it_is_found() -> None:
    waiting = {0xA}
    pending = PendingRows(lambda row: row.subject in waiting)

    first = list(pending.ready([row(0xA, 1), row(0xB, 2)], ()))
    second = list(pending.ready([row(0xA, 3)], ()))
    waiting.clear()
    third = list(pending.ready([row(0xA, 5)], ()))

    assert (first, second) == ([row(0xB, 2)], [])
    assert third == [row(0xA, 4), row(0xA, 5)]
    assert list(pending.ready([], ())) == []


def test_an_ended_program_cannot_wait() -> None:
    pending = PendingRows(lambda _: True)
    list(pending.ready([row(0xA, 1), row(0xA, 2, tgid=11)], ()))

    assert list(pending.ready([row(0xA, 3)], {10})) == [row(0xA, 1), row(0xA, 3)]
    assert list(pending.ready([], {11})) == [row(0xA, 2, tgid=11)]


def test_at_the_end_nothing_is_held_back() -> None:
    pending = PendingRows(lambda _: True)
    list(pending.ready([row(0xA, 1)], ()))

    pending.end()

    assert list(pending.ready([row(0xA, 2)], ())) == [row(0xA, 1), row(0xA, 2)]


def test_what_waits_takes_no_more_room_however_often_it_is_read() -> None:
    waiting = {0xA, 0xB}
    pending = PendingRows(lambda row: row.subject in waiting)

    for _ in range(1000):
        assert list(pending.ready([row(0xA, 2), row(0xB, 3)], ())) == []
    assert len(pending._held) == 2
    waiting.clear()

    assert list(pending.ready([], ())) == [row(0xA, 2000), row(0xB, 3000)]
