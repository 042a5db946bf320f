"""Programs that share a number: through exec, spawn and numbers given out again, each is counted as the one it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from otel_gpu.discovery.program_id import ProgramId
from otel_gpu.receivers.cuda.busy import BusyDelta
from otel_gpu.service.agent import Agent
from otel_gpu.signals.metrics import Point
from tests.e2e import liar
from tests.e2e.inside import cuda_of
from tests.e2e.liar import LAUNCHES, Said
from tests.e2e.processes import DEADLINE_S

CHAINS = 100
SHORT = 1000
SKIPPED = 77


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    with liar.observer() as agent:
        yield agent


@pytest.fixture
def programs(tmp_path: Path) -> list[Path]:
    """The same program under three names."""
    return [Path(shutil.copy(liar.built() / "chain", tmp_path / name)) for name in ("first", "second", "third")]


def run(*words: str | Path, **variables: str) -> int:
    """Run a program to its end and return its process's number."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(liar.built()), **variables}
    with subprocess.Popen([str(w) for w in words], env=environment, stderr=subprocess.PIPE, text=True) as process:
        errors = process.communicate(timeout=DEADLINE_S)[1]
    if process.returncode == SKIPPED:
        pytest.skip(errors.strip())
    assert process.returncode == 0, errors
    return process.pid


def launches(agent: Agent) -> list[Point]:
    return [p for p in agent.snapshot() if p.name == LAUNCHES]


def test_a_hundred_processes_that_become_other_programs_are_counted_as_each(agent: Agent, programs: list[Path]) -> None:
    first, second, third = programs
    with ThreadPoolExecutor(8) as chains:
        pids = list(chains.map(lambda _: run(first, 100, "exec", second, 7, "exec", third, 3), range(CHAINS)))

    points = launches(agent)
    instances = {(w["process.pid"], w["service.instance.id"]) for p in points if (w := dict(p.resource.attributes))}
    assert len({instance for pid, instance in instances if pid in pids}) == len(pids)
    for pid in pids:
        mine = [p for p in points if dict(p.resource.attributes)["process.pid"] == pid]
        assert {dict(p.resource.attributes)["service.name"]: p.value for p in mine} == {
            "first": 100,
            "second": 7,
            "third": 3,
        }
        for point in mine:
            who = dict(point.resource.attributes)
            path = str(first.parent / str(who["service.name"]))
            assert (who["process.executable.path"], who["process.command"]) == (path, path)
            assert who["process.executable.name"] == who["service.name"]
            assert who["process.parent_pid"] == os.getpid()


def test_a_program_is_called_what_its_environment_said_though_it_has_ended(agent: Agent, programs: list[Path]) -> None:
    first, second, _ = programs
    changed = ("/usr/bin/env", "OTEL_SERVICE_NAME=inner", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test")
    pid = run(first, 5, "exec", *changed, second, 6, OTEL_SERVICE_NAME="outer", PADDING="x" * 4000)

    said = Said(agent, pid)
    assert said.services() == {"outer": 5, "inner": 6}
    inner = next(p for p in said.points if dict(p.resource.attributes)["service.name"] == "inner")
    assert dict(inner.resource.attributes)["deployment.environment.name"] == "test"


def test_a_thread_that_calls_exec_makes_its_process_another_program(agent: Agent, programs: list[Path]) -> None:
    pid = run(programs[0], 9, "thread", programs[1], 8)

    assert Said(agent, pid).services() == {"first": 9, "second": 8}


def test_a_process_that_is_spawned_is_counted_apart(agent: Agent, programs: list[Path]) -> None:
    pid = run(programs[0], 20, "spawn", programs[1], 8)

    children = [p for p in launches(agent) if dict(p.resource.attributes)["process.parent_pid"] == pid]
    assert Said(agent, pid).services() == {"first": 20}
    assert [(dict(p.resource.attributes)["service.name"], p.value) for p in children] == [("second", 8)]


def test_a_number_that_is_given_out_again_is_another_process(agent: Agent, programs: list[Path]) -> None:
    number = unused_number()
    for _ in range(10):
        for program, times in zip(programs, (100, 7, 3), strict=True):
            run(programs[0], number, "as", program, times)

    assert Said(agent, number).services() == {"first": 1000, "second": 70, "third": 30}


def test_a_program_that_lives_while_an_interval_is_read_has_its_path(
    agent: Agent, programs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda, pids = cuda_of(agent), []
    read = cuda._busy.read

    def read_later(known: Container[ProgramId]) -> Iterator[BusyDelta]:
        # The program's announcement is in the ring, and the ring is read by nobody yet.
        with cuda._ring._lock:
            pids.append(run(programs[0], 100))
            yield from read(known)

    monkeypatch.setattr(cuda._busy, "read", read_later)
    launches(agent)
    monkeypatch.undo()

    [pid] = pids
    resources = [dict(p.resource.attributes) for p in launches(agent) if ("process.pid", pid) in p.resource.attributes]
    assert [who.get("process.executable.path") for who in resources] == [str(programs[0])]


def test_a_thousand_short_processes_are_counted_exactly(agent: Agent, tmp_path: Path) -> None:
    with liar.hostile(tmp_path, forks=SHORT) as parent:
        parent.ready()
        did = parent.run_phase(timeout=300)
        children = [p for p in launches(agent) if dict(p.resource.attributes)["process.parent_pid"] == parent.pid]
        parent.go()
        assert parent.wait() == 0

    by_process: Counter[object] = Counter()
    for point in children:
        # Numbers may come again.
        by_process[point.resource] += point.value
    assert sum(by_process.values()) == did["launches"]
    assert {dict(r.attributes)["service.name"] for r in by_process} == {"hostile"}
    deadline = time.monotonic() + DEADLINE_S
    while any(state.parent == parent.pid for state in cuda_of(agent)._programs.states().values()):
        assert time.monotonic() < deadline, "entries of programs that have ended stay"
        agent.snapshot()


def unused_number() -> int:
    """Return a process number that nobody has, far from those given out next."""
    last = int(Path("/proc/loadavg").read_text().split()[-1])
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    return next(
        n for n in (300 + (last + most // 2 + k) % (most - 300) for k in range(1000)) if not Path(f"/proc/{n}").exists()
    )
