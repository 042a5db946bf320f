"""Rows belong to the program that made them: through exec, exit and pids given out again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from otel_gpu.discovery.identification import Identification, Known
from otel_gpu.discovery.process_info import ProcessInfo
from otel_gpu.discovery.processes import Began, Process, ProcessTable
from otel_gpu.discovery.program_id import ProgramId
from otel_gpu.discovery.selection import Rule, Selection


@dataclass
class Kept:
    """What the kernel keeps of a program."""

    began: Began
    comm: str
    parent: int
    is_announced: bool
    ended_s: float | None


class Kernel:
    """Stands for the kernel: which program a pid runs, and what is kept of programs."""

    def __init__(self, table: ProcessTable | None = None) -> None:
        self.now: dict[int, tuple[int, Began]] = {}
        self.changes: dict[int, list[tuple[int, int]]] = {}
        self.kept: dict[ProgramId, Kept] = {}
        if table is not None:
            table.ask(self)

    def runs(self, pid: int, exec_id: int, executions: int = 1) -> None:
        self.now[pid] = exec_id, Began(7, executions)

    def keeps(
        self, pid: int, exec_id: int, comm: str = "", *, ended_s: float | None = None, is_announced: bool = False
    ) -> None:
        self.kept[ProgramId(pid, exec_id)] = Kept(Began(7, 1), comm, 1, is_announced, ended_s)

    def running(self, pid: int) -> tuple[int, Began] | None:
        if steps := self.changes.get(pid):
            self.runs(pid, *steps.pop(0))
        return self.now.get(pid)

    def state(self, program: ProgramId) -> Kept | None:
        return self.kept.get(program)

    def states(self) -> Mapping[ProgramId, Kept]:
        return self.kept


def info(pid: int, name: str) -> ProcessInfo:
    return ProcessInfo(pid, comm=name, executable=f"/bin/{name}")


def names(process: Process) -> object:
    return dict(process.resource.attributes)["service.name"]


ME = Rule(user=str(os.getuid()))
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


def test_programs_of_one_pid_are_told_apart_by_what_the_kernel_says(
    table: ProcessTable, child: subprocess.Popen[bytes]
) -> None:
    kernel = Kernel(table)
    kernel.runs(child.pid, 111, executions=1)
    first = table.observe(child.pid)
    kernel.runs(child.pid, 222, executions=2)
    second = table.observe(child.pid)

    assert (first.ended, second.ended) == (True, False)
    assert table.current(child.pid) is second
    assert table.owner(ProgramId(child.pid, 222)) is second
    assert table.owner(ProgramId(child.pid, 111)) is first


@pytest.mark.parametrize("selection", [Selection(include=(ME,)), Selection(exclude=(Rule(user="12345"),))])
def test_a_program_that_shows_itself_first_is_selected_by_its_user(
    selection: Selection, child: subprocess.Popen[bytes]
) -> None:
    table = ProcessTable(selection=selection)
    Kernel(table).runs(child.pid, 111)

    shown = table.announced(111, Began(7, 1), info(child.pid, "shown"), is_whole=True, late=False)
    gone = table.announced(99, Began(7, 0), info(child.pid, "gone"), is_whole=True, late=False)

    assert (shown.resource.is_selected, gone.resource.is_selected) == (True, False)


def test_an_exec_that_is_told_late_does_not_end_what_runs_now(
    table: ProcessTable, child: subprocess.Popen[bytes]
) -> None:
    kernel = Kernel(table)
    kernel.runs(child.pid, 222, executions=2)
    process = table.observe(child.pid)

    table.executed(child.pid, "second")

    assert not process.ended
    kernel.runs(child.pid, 333, executions=3)
    table.executed(child.pid, "third")
    assert process.ended


def test_a_program_has_the_name_that_it_had_when_it_showed_itself(
    table: ProcessTable, child: subprocess.Popen[bytes]
) -> None:
    kernel = Kernel(table)
    kernel.runs(child.pid, 333, executions=3)
    third = table.observe(child.pid)

    # What the first two said comes when the third runs already.
    second, first = (
        table.announced(number, Began(7, n), info(child.pid, name), is_whole=True, late=True)
        for number, n, name in ((222, 2, "second"), (111, 1, "first"))
    )

    assert [names(p) for p in (first, second)] == ["first", "second"]
    assert (first.ended, second.ended, third.ended) == (True, True, False)
    assert list(table) == [first, second, third]
    assert table.announced(333, Began(7, 3), info(child.pid, "x"), is_whole=True, late=True) is third
    assert [table.owner(ProgramId(child.pid, n)) for n in (111, 222, 333)] == [first, second, third]


def test_discovery_says_whether_a_program_is_late(table: ProcessTable, child: subprocess.Popen[bytes]) -> None:
    kernel = Kernel(table)
    kernel.runs(child.pid, 111)
    announced = table.announced(111, Began(7, 1), info(child.pid, "early"), is_whole=True, late=True)
    assert announced.late

    assert table.observe(child.pid, late=False) is announced
    assert not announced.late
    assert not table.observe(child.pid, late=True).late


def test_what_a_program_could_not_say_is_read_while_it_runs(
    table: ProcessTable, child: subprocess.Popen[bytes]
) -> None:
    kernel = Kernel(table)
    kernel.runs(child.pid, 111)
    cut = info(child.pid, "cut")

    whole = table.announced(111, Began(7, 1), cut, is_whole=False, late=False)
    gone = table.announced(99, Began(7, 0), cut, is_whole=False, late=False)

    assert names(whole) != "cut"
    assert names(gone) == "cut"


def test_what_is_read_while_another_program_begins_is_read_again(
    table: ProcessTable, child: subprocess.Popen[bytes]
) -> None:
    kernel = Kernel(table)
    kernel.changes = {child.pid: [(111, 1), (222, 2), (222, 2), (222, 2)]}

    process = table.observe(child.pid)

    assert process.exec_id == 222


def test_a_program_is_done_with_when_the_kernel_counts_nothing_of_it_any_more(
    table: ProcessTable, child: subprocess.Popen[bytes]
) -> None:
    kernel = Kernel(table)
    kernel.runs(child.pid, 111)
    process = table.observe(child.pid)
    kernel.keeps(child.pid, 111)

    child.communicate()
    kernel.now.clear()
    assert table.exited(child.pid) is process
    assert table.ended() == []
    process.ended_s -= 60
    assert table.ended() == [process]
    process.ended_s += 60
    kernel.keeps(child.pid, 111, ended_s=time.monotonic())
    assert table.ended() == [process]


def test_a_program_that_ended_unseen_is_done_with_too(table: ProcessTable) -> None:
    kernel = Kernel(table)
    kernel.keeps(1 << 22, 111, comm="short", ended_s=time.monotonic(), is_announced=True)
    # What it said of itself may still come.
    assert table.ended() == []
    kernel.keeps(1 << 22, 111, comm="short", ended_s=time.monotonic() - 60, is_announced=True)

    (process,) = table.ended()

    assert (process.pid, process.exec_id, names(process)) == (1 << 22, 111, "short")


def test_those_known_already_are_asked_of_the_kernel(table: ProcessTable, child: subprocess.Popen[bytes]) -> None:
    table.observe(child.pid, late=True)
    kernel = Kernel()
    kernel.runs(child.pid, 111)

    table.ask(kernel)

    (process,) = table
    assert (process.exec_id, process.late) == (111, True)


def test_rows_of_a_process_that_nobody_saw_have_an_owner(table: ProcessTable) -> None:
    process = table.owner(ProgramId(1 << 22, 5))

    assert dict(process.resource.attributes)["service.name"] == "unknown_service"
    assert table.owner(ProgramId(1 << 22, 5)) is process


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


def test_who_waits_for_a_programs_name_holds_up_nobody(table: ProcessTable, child: subprocess.Popen[bytes]) -> None:
    asked = threading.Event()

    class Slow(Identification):
        def get(self) -> Known:
            asked.set()
            return super().get()

    process = table.observe(child.pid)
    resource = process.resource
    identification = Slow(ProcessInfo(child.pid), lambda _: resource, timeout_s=60)
    process.identity = identification
    with ThreadPoolExecutor(2) as others:
        found = others.submit(table.of_resource, resource)
        assert asked.wait(10)
        try:
            assert others.submit(table.known, child.pid).result(timeout=10)
        finally:
            identification.supply(ProcessInfo(child.pid))
        assert found.result(timeout=10) is process
