"""The ways to names that the kernel follows: those of the library that has a number, and of no other."""

from __future__ import annotations

import struct

from otel_gpu.receivers.cuda.record_ways import RecordWays
from otel_gpu.sandbox.files import FileId

FIRST, SECOND = FileId(1, 10, 100), FileId(1, 20, 100)
PATHS = frozenset({(416, 0), (16, 24, 8), (7,)})
SAID = [(7, 0, 0, 1), (16, 24, 8, 3), (416, 0, 0, 2), (0, 0, 0, 0)]
NOTHING = [(0, 0, 0, 0)] * 4


class Table:
    """What is written, by number."""

    def __init__(self) -> None:
        self.rows: dict[int, list[tuple[int, ...]]] = {}

    def put(self, key: bytes, value: bytes) -> None:
        self.rows[int.from_bytes(key, "little")] = list(struct.iter_unpack("<4H", value))


def ways() -> tuple[RecordWays, dict[int, list[tuple[int, ...]]]]:
    table = Table()
    return RecordWays(table), table.rows  # type: ignore[arg-type]


def test_ways_are_written_whether_they_are_known_before_the_library_is_placed_or_after() -> None:
    before, rows = ways()
    before.believe(FIRST, PATHS)
    before.place(3, FIRST)
    after, others = ways()
    after.place(3, FIRST)
    assert others == {3: NOTHING}
    after.believe(FIRST, PATHS)

    assert rows == others == {3: SAID}


def test_nothing_is_believed_any_more_of_a_driver_that_a_program_contradicted() -> None:
    found, rows = ways()
    found.place(0, FIRST)
    found.believe(FIRST, PATHS)
    found.believe(FIRST, frozenset())

    assert rows == {0: NOTHING}


def test_libraries_that_share_a_number_have_ways_only_where_they_are_the_same() -> None:
    found, rows = ways()
    found.believe(FIRST, PATHS)
    found.place(0, FIRST)
    found.place(0, SECOND)
    assert rows == {0: NOTHING}
    found.believe(SECOND, PATHS)
    assert rows == {0: SAID}
    found.believe(SECOND, frozenset({(8, 0)}))
    assert rows == {0: NOTHING}
    found.remove(FIRST)
    assert rows[0][0] == (8, 0, 0, 2)


def test_of_more_ways_than_there_is_room_for_none_is_followed() -> None:
    found, rows = ways()
    found.place(0, FIRST)
    found.believe(FIRST, frozenset({(offset, 0) for offset in range(0, 40, 8)}))

    assert rows == {0: NOTHING}
