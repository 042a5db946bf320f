"""What programs had mapped is kept by program, and there is only so much of it."""

from __future__ import annotations

import pytest

from otel_gpu.discovery import mapped_before
from otel_gpu.discovery.mapped_before import MappedBefore
from otel_gpu.discovery.program_id import ProgramId
from otel_gpu.sandbox.files import MappedFile


def files(pid: int, number: int) -> list[MappedFile]:
    return [MappedFile(pid, n << 12, n + 1 << 12, 0, (8, 1), n + 1, b"/lib/a.so") for n in range(number)]


def test_it_is_told_of_the_program_that_had_it_mapped_and_no_other() -> None:
    noted, known = MappedBefore(), files(7, 2)
    noted.note(ProgramId(7, 1), known)

    assert noted.of(ProgramId(7, 1)) == known
    assert noted.of(ProgramId(7, 2)) == noted.of(ProgramId(8, 1)) == ()
    noted.note(ProgramId(7, 2), files(7, 1))
    assert noted.of(ProgramId(7, 1)) == ()
    noted.forget(7)
    assert noted.of(ProgramId(7, 2)) == ()


def test_programs_with_many_files_cost_a_bounded_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_before, "MAX_FILES", 10)
    monkeypatch.setattr(mapped_before, "MAX_OF_ONE", 4)
    noted = MappedBefore()
    for pid in range(1, 5):
        noted.note(ProgramId(pid, 1), files(pid, 4))
    noted.note(ProgramId(9, 1), files(9, 5))

    assert [len(noted.of(ProgramId(pid, 1))) for pid in (1, 2, 3, 4, 9)] == [0, 0, 4, 4, 0]
    # What was forgotten has made room.
    noted.forget(3)
    noted.note(ProgramId(5, 1), files(5, 4))
    assert [len(noted.of(ProgramId(pid, 1))) for pid in (4, 5)] == [4, 4]
