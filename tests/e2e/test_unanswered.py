"""A program whose command line and environment cannot be read is counted like others, and costs them nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.e2e import comparison, ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import Agent, Program

CALLS = ground.PROGRAMS / "ctypes_calls.py"


def test_a_program_that_cannot_be_looked_at_is_counted_like_others(tmp_path: Path) -> None:
    hidden_command = [sys.executable, ground.PROGRAMS / "unanswered_start.py", CALLS, "--launches", "400"]
    named = {"OTEL_SERVICE_NAME": "named"}
    with (
        Program(hidden_command, tmp_path, named) as hidden,
        Program([sys.executable, CALLS, "--launches", "400"], tmp_path, named) as seen,
    ):
        _ready(hidden)
        seen.ready()
        arguments = ["--pid", str(hidden.pid), str(seen.pid), "--output", f"file:{tmp_path / 'out'}"]
        with Agent(arguments, tmp_path) as agent:
            agent.wait_attached()
            hidden.run_phase()
            seen.run_phase()
            agent.wait_for(
                rf"process {hidden.pid} \(.*\): its command line and environment cannot be read \(no answer\)"
            )
            hidden.finish()
            seen.finish()
            agent.stop()

    everything = read_metrics(tmp_path / "out")
    resources = []
    for program in (hidden, seen):
        of_program = everything.of(program.pid)
        assert of_program.total(comparison.LAUNCHES) == 500
        (resource,) = {json.dumps(s.resource): s.resource for s in of_program.samples}.values()
        resources.append(resource)
    assert [r.get("process.command") for r in resources] == [None, sys.executable]
    assert [r["service.name"] == "named" for r in resources] == [False, True]
    assert resources[0]["process.executable.name"] == resources[1]["process.executable.name"]
    assert everything.by("otel_gpu.processes.unread", "otel_gpu.reason")["no_answer"] == 1


def _ready(program: Program) -> None:
    try:
        program.ready()
    except AssertionError as error:
        if "cannot" in str(error):
            pytest.skip(f"this kernel does not let a program do that: {error}")
        raise
