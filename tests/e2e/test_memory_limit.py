"""In a control group with little memory the agent has smaller tables, and counts as exactly."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.ground import ROOT, UnavailableError
from bench.memory import stay
from bench.memory_group import memory_group
from otel_gpu.discovery.events import ProcessEvents
from tests.e2e import comparison, ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import DEADLINE_S, Agent, Program


@pytest.mark.parametrize("limit_mb, profiles", [(150, False), (200, False), (250, True), (300, True)])
def test_launches_are_exact_with_little_memory(limit_mb: int, profiles: bool) -> None:
    ground.part("mock")
    try:
        done = stay(limit_mb, profiles=profiles)
    except UnavailableError as e:
        pytest.skip(str(e))

    assert done.counted == 10_000, done.log
    assert "of their usual size" in done.log
    assert done.peak_bytes <= limit_mb * 1_000_000


def test_too_little_memory_is_said_before_it_is_the_end() -> None:
    ground.part("mock")
    try:
        done = stay(64, profiles=False)
    except UnavailableError as e:
        pytest.skip(str(e))

    assert "the control group of this process allows" in done.log
    assert "raise the limit" in done.log


_LARGE = """
import logging
from otel_gpu.bpf.object import BpfObject
logging.basicConfig()
with BpfObject("profile") as loaded:
    loaded.configure_map("unwind_rows", max_entries=1 << 27)
    loaded.load(attach_type=lambda _: None)
    print(loaded.map("unwind_rows").max_entries)
"""


def test_tables_for_which_there_is_no_memory_are_made_smaller() -> None:
    try:
        with memory_group(200_000_000) as group:
            done = subprocess.run(
                group.entering(sys.executable, "-c", _LARGE), cwd=ROOT, capture_output=True, text=True, check=False
            )
    except UnavailableError as e:
        pytest.skip(str(e))

    assert done.returncode == 0, done.stderr
    assert 1 << 22 <= int(done.stdout) <= 1 << 25
    assert "no memory for the tables of profile: tried again with 1/" in done.stderr


def _run(*within: str) -> subprocess.CompletedProcess[str]:
    command = [*within, sys.executable, "-m", "otel_gpu", "run", "--duration", "1", "--output", "console"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def _refused(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of an agent that does not start."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("limit_mb", [60, 100, 130, 150, 170, 180])
def test_too_few_addresses_are_one_line_that_names_their_limit(limit_mb: int) -> None:
    """Each ends the start elsewhere."""
    line = _refused(_run("prlimit", f"--as={limit_mb << 20}"))

    assert line.startswith("otel-gpu: ")
    assert line.endswith(
        "raise the limit of address space (ulimit -v unlimited, or LimitAS=infinity of the service); "
        f"it is {limit_mb} MiB"
    )


def test_children_have_no_more_addresses_than_the_agent_and_launches_are_exact(tmp_path: Path) -> None:
    storm = [ground.part("programs") / "launch_storm", "--gate", "--launches", "5000"]
    with Program(storm, tmp_path) as program:
        program.ready()
        arguments = ["--pid", str(program.pid), "--output", f"file:{tmp_path / 'out'}"]
        # Less than a child that reads files may take where there is no limit.
        with Agent(arguments, tmp_path, within=["prlimit", f"--as={480 << 20}"]) as agent:
            agent.wait_attached()
            program.run_phase()
            truth = program.finish()
            agent.stop()

    comparison.assert_launches(read_metrics(tmp_path / "out").of(truth.pid), truth)


def test_too_little_locked_memory_for_process_events_is_one_line() -> None:
    within = ("setpriv", "--inh-caps=-ipc_lock", "--bounding-set=-ipc_lock", "prlimit", "--memlock=0:0")
    with ExitStack() as held:
        # All that this user's processes may have together without the right, or a limit of their own. Other agents of the user have
        # some of it, and give it back when they end: then there is more to hold.
        for _ in range(8):
            for _ in range(4):
                held.callback(ProcessEvents().close)
            if (done := _run(*within)).returncode:
                break
    line = _refused(done)

    assert "no memory for process events: Operation not permitted; raise the limit of locked memory" in line
    assert "ulimit -l" in line
