"""The examples do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.e2e import ground
from tests.e2e.processes import DEADLINE_S, Program

_EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def _run(name: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, _EXAMPLES / name, *arguments], stdout=subprocess.PIPE, text=True)


def test_an_exporter_of_ones_own(tmp_path: Path) -> None:
    storm = [ground.part("programs") / "launch_storm", "--gate", "--launches", "3000", "--memory", "20"]
    with Program(storm, tmp_path) as program:
        program.ready()
        with _run("own_exporter.py", str(program.pid), "60") as example:
            assert example.stdout is not None
            assert example.stdout.readline() == f"observing {program.pid}\n"
            program.run_phase()
            truth = program.finish()
            said, _ = example.communicate(timeout=DEADLINE_S)

    last = {line.split()[0]: (int(line.split()[1]), int(line.split()[3])) for line in said.splitlines()}
    # Which way what was allocated before the agent came is copied is not known.
    found = tuple(map(sum, zip(*last.values(), strict=True)))
    assert found == (sum(h.count for h in truth.copies.values()), sum(h.sum for h in truth.copies.values()))
    assert example.returncode == 0


def test_recordings_and_their_difference(tmp_path: Path) -> None:
    with Program(["python3", ground.PROGRAMS / "busy.py", "1"], tmp_path) as program:
        program.ready()
        recorded = _run("record_profiles.py", str(program.pid), str(tmp_path), "0.5")
        said, _ = recorded.communicate(timeout=DEADLINE_S)

    assert recorded.returncode == 0
    assert "samples" in said
    assert (tmp_path / "before.html").stat().st_size > 1000 < (tmp_path / "after.html").stat().st_size


def test_an_agent_beside_a_tracer_provider(tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text("{receivers: {self: {}}, exporters: {file: {path: out}}}")

    done = subprocess.run(
        [sys.executable, _EXAMPLES / "own_tracer_provider.py", config, "0.2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "observing\n", "")
