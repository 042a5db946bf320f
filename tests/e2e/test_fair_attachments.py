"""Probes of one program do not wait for those of another program, however many drivers that one has mapped."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.e2e import ground
from tests.e2e.processes import Agent, Program

_MAPS = Path(__file__).parents[1] / "programs" / "maps_files.py"
_MANY = 24


def drivers(directory: Path, count: int) -> list[Path]:
    """Make copies of the driver that differ: each has probes of its own."""
    return [ground.another_driver(directory / f"driver-{number}") / "libcuda.so.1" for number in range(count)]


def test_a_program_goes_before_the_rest_of_one_that_maps_many_drivers(tmp_path: Path) -> None:
    own, *many = drivers(tmp_path, _MANY + 1)
    with (
        Agent(["--output", f"file:{tmp_path / 'out'}"], tmp_path) as agent,
        Program([sys.executable, _MAPS, *many], tmp_path) as greedy,
        Program([sys.executable, _MAPS, own], tmp_path) as modest,
    ):
        agent.wait_watching()
        greedy.ready()
        modest.ready()
        greedy.run_phase()
        modest.run_phase()
        for driver in (own, *many):
            agent.wait_for(rf"attached \d+ probes to {re.escape(str(driver))}")
        agent.stop()

    order = [Path(path) for path in re.findall(rf"probes to ({re.escape(str(tmp_path))}\S+)", agent.error_text)]
    assert sorted(order) == sorted([own, *many])
    # The other one had begun before; how far it was by then depends on what else the machine does.
    assert order.index(own) < _MANY * 3 // 4, order
