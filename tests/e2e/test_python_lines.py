"""Line tables must say what the interpreters that made them say, and nothing of nonsense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.stacks.cpython.layout import LineTable
from otel_gpu.stacks.cpython.lines import line_at
from tests.cpythons import Interpreter, interpreters, line_tables


@pytest.mark.parametrize("interpreter", interpreters(), ids=lambda i: i.name)
def test_every_instruction_of_library_code_gets_the_line_that_the_interpreter_gives(interpreter: Interpreter) -> None:
    if interpreter.missing:
        pytest.skip(interpreter.missing)
    formats = {8: LineTable.LNOTAB, 9: LineTable.LNOTAB, 10: LineTable.PEP626}
    kind = formats.get(interpreter.minor, LineTable.LOCATIONS)

    codes = line_tables(interpreter)

    assert len(codes) > 30
    for table, first, ranges in codes:
        for start, end, line in ranges:
            assert {line_at(kind, table, first, start), line_at(kind, table, first, end - 2)} <= {line}


@pytest.mark.parametrize("kind", LineTable)
def test_an_instruction_before_the_code_has_no_line(kind: LineTable) -> None:
    assert line_at(kind, b"", 7, -3) is None


@pytest.mark.parametrize("kind", LineTable)
def test_a_frame_that_has_not_started_is_at_its_first_line(kind: LineTable) -> None:
    assert line_at(kind, b"", 7, -1) == 7


@pytest.mark.parametrize("kind", [LineTable.PEP626, LineTable.LOCATIONS])
def test_an_instruction_beyond_the_table_has_no_line(kind: LineTable) -> None:
    assert line_at(kind, b"", 7, 0) is None


@given(
    st.sampled_from(LineTable), st.binary(max_size=300), st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-9, 999)
)
def test_any_table_gives_a_line_number_or_none(kind: LineTable, table: bytes, first: int, lasti: int) -> None:
    line = line_at(kind, table, first, lasti)

    assert line is None or lasti < 0 or 0 <= line < 1 << 31
