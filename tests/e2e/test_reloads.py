"""Does every launch keep the name of its kernel, when the driver gives the handles of unloaded modules out again?"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.e2e import comparison, ground, naming
from tests.e2e.exported import read_metrics
from tests.e2e.processes import Agent, Program

ROUNDS = 4


def test_launches_have_the_name_that_their_handle_had_then(tmp_path: Path) -> None:
    command = [sys.executable, "-S", ground.PROGRAMS / "reloads.py"]
    # Where several kernels had one handle within an interval, and where there are intervals between them.
    with Program(command, tmp_path, {"MOCKCUDA_REUSE": "1"}) as program:
        program.ready()
        with Agent(["--pid", str(program.pid), *naming.arguments(tmp_path)], tmp_path) as agent:
            agent.wait_attached()
            for _ in range(ROUNDS):
                program.run_phase()
            program.process.stdin.close()
            truth = program.finish()
            agent.stop()

    everything = read_metrics(tmp_path / "out")
    exported = everything.of(truth.pid)
    assert len(truth.launches) == ROUNDS * (3 * 40 + 4) + 1
    launches = exported.by(comparison.LAUNCHES, "cuda.kernel.name")
    # Nobody saw what this one is called; what is launched at its handle afterwards is none of it.
    for name in [name for name in launches if "+0x" in name]:
        launches["kept"] += launches.pop(name)
    whole = {name: n for name, n in launches.items() if not name.startswith("long_")}
    assert whole == {name: n for name, n in truth.launches.items() if not name.startswith("long_")}
    # Too long to be kept whole, but not so that two would be one.
    cut = sorted(n for name, n in launches.items() if name.startswith("long_"))
    assert cut == sorted(n for name, n in truth.launches.items() if name.startswith("long_"))
    assert exported.by(comparison.GRAPH_KERNELS, "cuda.kernel.name") == truth.graphed
    assert +everything.by(comparison.LOST, "otel_gpu.event") == {
        "names_cut": ROUNDS * 4 * 2
    }  # each was asked for twice
