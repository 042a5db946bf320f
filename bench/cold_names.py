"""Has every launch its name, of programs that crowd a host? `python -m bench.cold_names [--programs 100] [--at-once 23]`.

With an empty cache, programs on NVIDIA's runtime start side by side, launch 40 kernels each, and end, their contexts with
them. Prints how many launches were counted and named, and how many events were lost; in a pid namespace of their own;
exit code 1 where one is missing, unnamed or lost. `--early` programs begin before the agent does, and launch once it observes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench import faults, ground, pid_namespace
from bench.agent_process import AgentProcess
from bench.sink import Sink
from bench.target import Target
from otel_gpu.signals import cuda

_INTERVAL_S = 2.0
_DELIVERED_S = 60.0
_AT_START, _LAUNCHES = 8, 32
"""A program launches each of its kernels once before it takes orders."""
_NAMES = "kernel<"
_LOST = ("otel_gpu.events.lost", "otel_gpu.process.events.lost")


@dataclass(frozen=True, slots=True)
class ColdNames:
    """What came of it, by pid."""

    launched: dict[int, int]
    counted: dict[int, int]
    named: dict[int, int]
    lost: int
    seconds: float
    """From the first program's start until all that were launched were exported, or until nobody waited any more."""

    def faults(self) -> Iterator[str]:
        """Say of which programs not every launch was counted and named, and what was lost."""
        for pid, launched in sorted(self.launched.items()):
            counted, named = self.counted.get(pid, 0), self.named.get(pid, 0)
            if (counted, named) != (launched, launched):
                yield f"process {pid}: of {launched:,} launches {counted:,} counted, {named:,} named"
        if self.lost:
            yield f"{self.lost:,} events were lost"


def cold_names(programs: int, at_once: int, early: int) -> ColdNames:
    """Let so many programs live and end, `at_once` side by side, of which `early` begin before the agent does."""
    launched: Counter[int] = Counter()
    lock = threading.Lock()

    def live(target: Target, *, late: bool) -> None:
        with target:
            target.do(f"launch {_LAUNCHES}")
        with lock:
            launched[target.pid] += target.calls + (_AT_START if late else 0)

    # Built before anybody runs it.
    ground.runtime_program()
    running = [Target.on_runtime() for _ in range(early)]
    with Sink() as sink, tempfile.TemporaryDirectory() as cache:
        environment = {"XDG_CACHE_HOME": cache, "LD_LIBRARY_PATH": str(ground.mock_driver())}
        with AgentProcess(sink.endpoint, _INTERVAL_S, environment=environment) as agent:
            agent.wait_for("observing")
            began = time.monotonic()
            with ThreadPoolExecutor(at_once) as side_by_side:
                done = [side_by_side.submit(live, target, late=False) for target in running]
                done += [
                    side_by_side.submit(lambda: live(Target.on_runtime(), late=True)) for _ in range(programs - early)
                ]
            for one in done:
                one.result()
            while sum(_named(sink).values()) < launched.total() and time.monotonic() - began < _DELIVERED_S:
                time.sleep(_INTERVAL_S / 4)
            seconds = time.monotonic() - began
        lost = sum(sum(sink.totals(metric).values()) for metric in _LOST)
        counted = sink.totals(cuda.KERNEL_LAUNCH_CALLS.name)
        return ColdNames(dict(launched), counted, dict(_named(sink)), lost, seconds)


def _named(sink: Sink) -> Counter[int]:
    named: Counter[int] = Counter()
    for (pid, name), count in sink.totals_by(cuda.KERNEL_LAUNCH_CALLS.name, "cuda.kernel.name").items():
        named[pid] += count if _NAMES in name else 0
    return named


def main() -> int:
    """Print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.cold_names", description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=23)
    parser.add_argument("--early", type=int, default=0, help="of these, programs that begin before the agent does")
    arguments = parser.parse_args()
    if not pid_namespace.is_own():
        return pid_namespace.run("bench.cold_names", *sys.argv[1:])
    done = cold_names(arguments.programs, arguments.at_once, arguments.early)
    launched = sum(done.launched.values())
    print(f"{arguments.programs:,} programs, {arguments.at_once} at once, in {done.seconds:.1f} s")
    print(f"{sum(done.counted.values()):,} of {launched:,} launches counted, {sum(done.named.values()):,} named")
    print(f"{done.lost:,} events lost")
    return faults.tell(done.faults(), most=20)


if __name__ == "__main__":
    sys.exit(main())
