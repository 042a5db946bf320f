"""What `otel-gpu inspect` says of a process is what the kernel has."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otel_gpu.bpf.features import probe
from tests.e2e import ground
from tests.e2e.processes import Agent, Program

_MAPS_THE_DRIVER = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
print('{"event": "ready"}', flush=True)
sys.stdin.read()
"""


def _inspect(pid: int) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "otel_gpu", "inspect", "--json", str(pid)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_probes_are_attached_while_an_agent_runs_and_gone_afterwards(tmp_path: Path) -> None:
    if not probe().uprobe_multi:
        pytest.skip("this kernel does not tell what its links are attached to (6.8)")
    # A copy of its own: any agent's probes show, and others may be at work on the shared one.
    driver = Path(shutil.copy(ground.part("mock") / "libcuda.so.1", tmp_path))

    with Program([sys.executable, "-c", _MAPS_THE_DRIVER, driver], tmp_path) as program:
        program.ready()
        with Agent(["--pid", str(program.pid), "--output", f"file:{tmp_path / 'out'}"], tmp_path) as agent:
            agent.wait_for(f"attached .* probes to {driver}")
            during = _inspect(program.pid)
            agent.stop()
        deadline = time.monotonic() + 30
        while any(row["attached"] for row in _inspect(program.pid)):
            assert time.monotonic() < deadline, "the probes are still there"

    assert {row["library"] for row in during} == {str(driver)}
    launch = next(row for row in during if row["symbol"] == "cuLaunchKernel")
    assert (launch["site"], launch["cost"], launch["attached"], launch["why"]) == (10, "emulated", True, None)
    assert all(row["attached"] == (row["offset"] is not None) for row in during)


def test_the_path_of_a_library_forges_no_line(tmp_path: Path) -> None:
    hostile = tmp_path / "\x1b[2J\n2026-11-21 00:00:00,000 ERROR forged"
    hostile.mkdir()
    driver = Path(shutil.copy(ground.part("mock") / "libcuda.so.1", hostile))

    with Program([sys.executable, "-c", _MAPS_THE_DRIVER, driver], tmp_path) as program:
        program.ready()
        with Agent(["--pid", str(program.pid), "--output", "console", "--debug"], tmp_path) as agent:
            agent.wait_for(r"attached .* probes to .*\\x1b\[2J\\n2026")
            agent.stop()
        command = [sys.executable, "-m", "otel_gpu", "inspect", str(program.pid)]
        inspected = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert inspected.startswith(f"process {program.pid}: ")
    assert "not observed now" in inspected
    lines = [*"".join(agent.errors).split("\n"), *inspected.split("\n")]
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("2026-11-21 00:00:00,000") for line in lines)
