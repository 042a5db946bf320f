"""Workers that a script spawns are its service's, and are selected with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e import ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import Agent, Program
from tests.waiting import until

_LAUNCHES = "gpu.cuda.kernel.launch.calls"
_CONFIG = "discovery: {include: [{command_line: '*train_workers.py*'}]}"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_workers_have_the_name_and_the_selection_of_their_script(method: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(_CONFIG)
    (tmp_path / "other").mkdir()
    out = tmp_path / "out"
    script = [sys.executable, ground.PROGRAMS / "train_workers.py", method]
    storm = [ground.part("programs") / "launch_storm", "--threads", "1", "--launches", "50", "--gate"]
    arguments = ["--config", tmp_path / "config.yaml", "--output", f"file:{out}"]
    with Program(script, tmp_path) as train, Program(storm, tmp_path / "other") as other:
        train.ready()
        other.ready()
        with Agent(arguments, tmp_path, {"LD_LIBRARY_PATH": ground.library_path()}) as agent:
            agent.wait_attached()
            other.run_phase()
            pids = train.run_phase()["pids"]
            # Who a process is, is read while it runs.
            until(lambda: set(pids) <= _exported(out).keys(), agent.error_text)
            train.go()
            assert train.wait() == 0, train.error_text
            other.finish()
            agent.stop()

    assert _exported(out) == {pid: ("train_workers", times) for pid, times in zip(pids, (11, 22, 33), strict=True)}


def _exported(out: Path) -> dict[object, tuple[object, float]]:
    """Return the names and the launches of processes."""
    samples = read_metrics(out).named(_LAUNCHES).samples
    return {s.resource["process.pid"]: (s.resource["service.name"], s.value) for s in samples}
