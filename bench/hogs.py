"""What does a program that takes all it can get cost its neighbours? `python -m bench.hogs [--times 1000000] [WHAT ...]`.

Each hog does one thing so often, on a driver that gives it as many handles as it likes, and goes on living. Then another
program begins and launches: each of its launches must be counted, under its kernel, and every launch of the hog in its total.
Runs in a pid namespace of its own; exit code 1 where a launch is missing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import faults, ground, pid_namespace
from bench.agent_process import AgentProcess
from bench.holdings import holdings
from bench.sink import Sink
from bench.target import Target
from otel_gpu.signals import cuda

WHAT = ("shapes", "handles", "streams", "names")
_LIAR = ground.ROOT / "tests" / "standins" / "liar"
_LAUNCHES = 2000
_INTERVAL_S = 2.0
_DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class Hog:
    """What came of one."""

    what: str
    launched: int
    counted: int
    seconds: float
    """That it took."""
    neighbours_launched: int
    neighbours_counted: int
    rss_bytes: int
    """Of the agent, when both had been exported."""

    def __str__(self) -> str:
        of_hog = f"{self.counted:,} of {self.launched:,} launches counted, " if self.launched else ""
        of_neighbour = f"of its neighbour {self.neighbours_counted:,} of {self.neighbours_launched:,}"
        return (
            f"{self.what} in {self.seconds:.1f} s: {of_hog}{of_neighbour}; the agent has {self.rss_bytes / 1e6:.0f} MB"
        )

    def faults(self) -> Iterator[str]:
        """Say whose launches were not counted, or more than these."""
        if self.counted != self.launched:
            yield f"{self.what}: {self.counted:,} of {self.launched:,} launches of the hog counted"
        if self.neighbours_counted != self.neighbours_launched:
            yield (
                f"{self.what}: {self.neighbours_counted:,} of {self.neighbours_launched:,} launches of the neighbour counted"
            )


def hogs(times: int, what: tuple[str, ...] = WHAT) -> Iterator[Hog]:
    """Let a hog of each kind live beside one agent, and yield what came of it."""
    from tests.e2e.processes import Program

    subprocess.run(["make", "-s", "-C", _LIAR], check=True, capture_output=True)
    known = {"LD_LIBRARY_PATH": str(ground.mock_driver())}
    with (
        Sink() as sink,
        tempfile.TemporaryDirectory() as place,
        AgentProcess(sink.endpoint, _INTERVAL_S, environment=known) as agent,
    ):
        agent.wait_for("observing")
        for kind in what:
            command = [_LIAR / "build" / "hostile", kind, str(times)]
            with Program(command, Path(place), {"LD_LIBRARY_PATH": str(_LIAR / "build")}) as hog:
                hog.ready()
                if kind == what[0]:
                    agent.wait_attached(str(_LIAR / "build"))
                began = time.monotonic()
                did = hog.run_phase(_DEADLINE_S)
                seconds = time.monotonic() - began
                with Target.on_driver() as neighbour:
                    neighbour.do(f"launch {_LAUNCHES}")
                    counted = _counted(sink, {hog.pid: int(str(did["launches"])), neighbour.pid: neighbour.calls})
                    yield Hog(
                        kind,
                        int(str(did["launches"])),
                        counted.get(hog.pid, 0),
                        seconds,
                        neighbour.calls,
                        counted.get(neighbour.pid, 0),
                        holdings(agent.pid).rss_bytes,
                    )


def _counted(sink: Sink, launched: dict[int, int]) -> dict[int, int]:
    """Wait until so many launches of each process have been exported, or for long enough; return how many were."""
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        counted = sink.totals(cuda.KERNEL_LAUNCH_CALLS.name)
        if all(counted.get(pid, 0) >= calls for pid, calls in launched.items()) or time.monotonic() > deadline:
            return dict(counted)
        time.sleep(_INTERVAL_S)


def main() -> int:
    """Print what came of each."""
    parser = argparse.ArgumentParser(prog="python -m bench.hogs", description=__doc__)
    parser.add_argument("--times", type=int, default=1_000_000)
    parser.add_argument("what", nargs="*", metavar="WHAT", help=f"of {', '.join(WHAT)}; all by default")
    arguments = parser.parse_args()
    if not pid_namespace.is_own():
        return pid_namespace.run("bench.hogs", *sys.argv[1:])
    found = []
    for hog in hogs(arguments.times, tuple(arguments.what) or WHAT):
        print(f"{arguments.times:,} {hog}", flush=True)
        found += hog.faults()
    return faults.tell(found)


if __name__ == "__main__":
    sys.exit(main())
