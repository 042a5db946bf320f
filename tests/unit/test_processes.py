"""Rows belong to the program that made them: through exec, exit and pids given out again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from otel_gpu.discovery.processes import ProcessTable

SLEEP = [sys.executable, "-Sc", "import sys; print(flush=True); sys.stdin.read()"]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEP, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        if process.poll() is None:
            process.communicate()


@pytest.fixture
def table() -> ProcessTable:
    return ProcessTable({"deployment.environment.name": "test"})


def test_a_process_is_learnt_once(table: ProcessTable, child: subprocess.Popen[bytes]) -> None:
    process = table.observe(child.pid, late=True)

    assert table.observe(child.pid) is process
    assert process.late
    assert dict(process.resource.attributes)["process.pid"] == child.pid
    assert dict(process.resource.attributes)["deployment.environment.name"] == "test"
    assert table.known(child.pid)
    assert list(table) == [process]


def test_incarnations_belong_to_programs_in_their_order(table: ProcessTable, child: subprocess.Popen[bytes]) -> None:
    first = table.observe(child.pid)
    table.executed(child.pid, "second")
    second = table.observe(child.pid)

    assert first.ended
    assert table.owner(child.pid, 111) is first
    assert table.owner(child.pid, 222) is second
    assert table.owner(child.pid, 111) is first


def test_an_exec_that_nobody_told_of_is_noticed_by_its_rows(
    table: ProcessTable, child: subprocess.Popen[bytes]
) -> None:
    first = table.observe(child.pid)
    table.owner(child.pid, 111)

    second = table.owner(child.pid, 222)

    assert second is not first
    assert (first.ended, second.ended, second.late) == (True, False, True)
    assert table.owner(child.pid, 222) is second


def test_rows_of_a_process_that_nobody_saw_have_an_owner(table: ProcessTable) -> None:
    process = table.owner(1 << 22, 5)

    assert dict(process.resource.attributes)["service.name"] == "unknown_service"
    assert table.owner(1 << 22, 5) is process


def test_a_process_that_was_gone_when_it_was_seen_has_the_name_of_its_exec(table: ProcessTable) -> None:
    table.executed(1 << 22, "short")

    assert dict(table.observe(1 << 22).resource.attributes)["service.name"] == "short"


def test_an_ended_process_stays_until_it_is_forgotten(table: ProcessTable, child: subprocess.Popen[bytes]) -> None:
    process = table.observe(child.pid)

    assert table.exited(child.pid) is process
    assert table.exited(child.pid) is None
    assert not table.known(child.pid)
    assert table.ended() == [process]
    table.forget(process)
    table.forget(process)
    assert table.ended() == list(table) == []


def test_processes_that_ended_without_telling_are_found(table: ProcessTable, child: subprocess.Popen[bytes]) -> None:
    process = table.observe(child.pid)
    table.check_alive()
    assert not process.ended

    child.communicate()
    table.check_alive()

    assert process.ended


def test_a_pid_given_out_again_is_another_process(table: ProcessTable, child: subprocess.Popen[bytes]) -> None:
    first = table.observe(child.pid)
    # As if the one before had started at another time.
    first.start_ticks -= 1

    second = table.observe(child.pid)

    assert second is not first
    assert first.ended


def test_names_of_programs_that_never_used_a_gpu_are_bounded(
    table: ProcessTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_gpu.discovery.processes._MAX_ENDED", 10)
    for pid in range(100):
        table.executed(pid, "sh")

    assert len(table._names) == 10
