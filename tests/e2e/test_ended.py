"""What ends leaves nothing behind: threads within calls, their processes, and what they had begun."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from otel_gpu.service.agent import Agent
from tests.e2e import liar
from tests.e2e.inside import cuda_of
from tests.e2e.liar import Said
from tests.e2e.processes import DEADLINE_S

MANY = 2000
PLACES = 1024
OWNER_AT = 8
"""In struct thread."""


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    with liar.observer() as agent:
        yield agent


def owners_of_threads(agent: Agent) -> list[int]:
    """Return whose the threads are that the kernel knows, by pid."""
    table = cuda_of(agent)._object.map("threads")
    layout = np.dtype({"names": ["tgid"], "formats": ["<u4"], "offsets": [OWNER_AT], "itemsize": table.value_size})
    _, values = table.read("<u8", layout)
    return list(map(int, values["tgid"].tolist()))


def test_threads_that_end_within_a_call_are_forgotten_at_once(agent: Agent, tmp_path: Path) -> None:
    with liar.hostile(tmp_path, waits=MANY) as program:
        program.ready()
        program.run_phase()
        # Without any help of the agent's.
        assert owners_of_threads(agent).count(program.pid) <= 1
        assert liar.entries_of(agent, program.pid)["threads"] <= 1
        assert Said(agent, program.pid).total(liar.LOST) == 0
        program.go()
        assert program.wait() == 0


def test_processes_that_are_killed_within_calls_leave_nothing(agent: Agent, tmp_path: Path) -> None:
    with liar.hostile(tmp_path, threads=MANY) as parent:
        parent.ready()
        parent.run_phase()
        parent.go()
        assert parent.wait() == 0
    deadline = time.monotonic() + DEADLINE_S
    while any(state.parent == parent.pid for state in cuda_of(agent)._programs.states().values()):
        assert time.monotonic() < deadline, "entries of programs that have ended stay"
        agent.snapshot()
    while gone := [pid for pid in owners_of_threads(agent) if not Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, f"of processes that have ended {len(gone)} threads stay"


def test_captures_of_a_program_that_has_ended_cost_the_others_nothing(agent: Agent, tmp_path: Path) -> None:
    with liar.hostile(tmp_path, captures=100) as program:
        program.ready()
        program.run_phase()
        (number,) = (number for pid, number in cuda_of(agent)._programs.states() if pid == program.pid)
        before = looks_per_launch(agent, number)
        program.go()
        assert program.wait() == 0
    assert looks_per_launch(agent, number) == before - 100


def looks_per_launch(agent: Agent, number: int) -> int:
    """Return how many captures and reused handles there are that a program's launches may be about."""
    counts = np.frombuffer(cuda_of(agent)._object.map(".bss").get(bytes(4)) or b"", "<u4")
    return int(counts[number % PLACES :: PLACES].sum())
