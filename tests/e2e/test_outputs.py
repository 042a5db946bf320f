"""What a stranger plants where output is to go is refused at the start, counted later, and holds nobody up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otel_gpu import profiles
from tests.e2e import ground
from tests.e2e.processes import Agent, Program
from tests.stopwatch import Stopwatch
from tests.unit.profile_examples import training


def _planted_link(path: Path) -> Path:
    """Plant a link in the place of a file, and return where it leads. Unit tests plant everything else there."""
    victim = path.parent / "victim"
    victim.write_text("precious")
    path.symlink_to(victim)
    return victim


def test_the_agent_does_not_start_on_a_planted_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    victim = _planted_link(out / "metrics.jsonl")

    with Agent(["--output", f"file:{out}", "--duration", "1"], tmp_path) as agent:
        assert agent.wait() == 1

    complaints = [line for line in agent.errors if line.startswith("otel-gpu: ")]
    assert len(complaints) == 1
    assert "metrics.jsonl" in complaints[0]
    assert victim.read_text() == "precious"


def test_a_fifo_that_is_planted_later_holds_up_neither_export_nor_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    metrics = out / "metrics.jsonl"
    with Agent(["--output", f"file:{out}"], tmp_path) as agent:
        agent.wait_watching()
        deadline = time.monotonic() + 60
        while not metrics.exists() or not metrics.stat().st_size:
            assert time.monotonic() < deadline, agent.error_text
            time.sleep(0.05)
        metrics.unlink()
        os.mkfifo(metrics)
        agent.wait_for("metrics.jsonl cannot be written: it is a FIFO")
        metrics.unlink()
        agent.wait_for("works again")
        os.rename(metrics, out / "moved.jsonl")
        with Stopwatch(agent.pid) as end:
            agent.stop()

        assert end.seconds() < 10
    failed = [
        point["asInt"]
        for line in metrics.read_text().splitlines()
        for resource in json.loads(line)["resourceMetrics"]
        for metric in resource["scopeMetrics"][0]["metrics"]
        if metric["name"] == "otel.sdk.exporter.metric_data_point.exported"
        for point in metric["sum"]["dataPoints"]
        if "error.type" in {one["key"] for one in point["attributes"]}
    ]
    assert int(failed[-1]) > 0


def test_a_recording_is_written_through_nothing_that_was_planted(tmp_path: Path) -> None:
    launches = [ground.part("programs") / "launch_storm", "--gate", "--launches", "20000"]
    victim = _planted_link(tmp_path / "out.folded")
    with Program(launches, tmp_path) as program:
        program.ready()
        command = [sys.executable, "-m", "otel_gpu", "record", "--pid", str(program.pid), "--duration", "5"]
        with subprocess.Popen([*command, "-o", tmp_path / "out.folded"], stderr=subprocess.PIPE, text=True) as recorder:
            while "recording" not in (line := recorder.stderr.readline()):
                assert line, "the recording did not begin"
            program.run_phase()
            program.finish()
            recorder.communicate()

    assert recorder.returncode == 0
    assert victim.read_text() == "precious"
    assert not (tmp_path / "out.folded").is_symlink()
    assert (tmp_path / "out.folded").read_text().count("\n") > 0


def test_a_recording_refuses_a_fifo_before_it_begins(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out.folded")
    command = [sys.executable, "-m", "otel_gpu", "record", "--pid", str(os.getpid()), "-o", tmp_path / "out.folded"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert "that is a FIFO; name a file" in done.stderr


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_comparison_does_not_wait_for_a_fifo(tmp_path: Path, place: str) -> None:
    recordings = [tmp_path / f"{name}.otlp.json" for name in ("before", "after")]
    for recording in recordings:
        os.mkfifo(recording) if recording.name.startswith(place) else profiles.write([training()], recording)
    command = [sys.executable, "-m", "otel_gpu", "record", "--diff", *recordings, "-o", tmp_path / "out.html"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert f"{place}.otlp.json: it is no file" in done.stderr
