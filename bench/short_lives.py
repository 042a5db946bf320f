"""Is every launch of a program counted that lives for a moment? `python -m bench.short_lives [--programs 10000] [--rate 20]`.

Programs start one after the other, several at a time, so many a second, launch 32 kernels, each program another number
of times, and end. Prints how many launches were counted, in a pid namespace of their own; exit code 1 where one is missing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from bench import faults, ground, pid_namespace
from bench.agent_process import AgentProcess
from bench.sink import Sink
from bench.target import Target
from otel_gpu.signals import cuda

_INTERVAL_S = 5.0
_DELIVERED_S = 60.0
_AT_ONCE = 4
_FEWEST, _COUNTS = 20, 97


@dataclass(frozen=True, slots=True)
class ShortLives:
    """What came of it."""

    launched: dict[int, int]
    """By pid, of all programs that had it."""
    counted: dict[int, int]
    seconds: float

    def faults(self) -> Iterator[str]:
        """Say of which programs not every launch was counted, or more than these."""
        for pid in self.launched.keys() | self.counted.keys():
            if (launched := self.launched.get(pid, 0)) != (counted := self.counted.get(pid, 0)):
                yield f"process {pid}: {counted:,} of {launched:,} launches"


def short_lives(programs: int, rate: float) -> ShortLives:
    """Let so many programs live and end, `rate` a second."""
    launched: Counter[int] = Counter()
    known = {"LD_LIBRARY_PATH": str(ground.mock_driver())}
    with Sink() as sink:
        with AgentProcess(sink.endpoint, _INTERVAL_S, environment=known) as agent:
            agent.wait_for("observing")
            began = time.monotonic()
            for first in range(0, programs, _AT_ONCE):
                time.sleep(max(began + first / rate - time.monotonic(), 0))
                numbers = range(first, min(first + _AT_ONCE, programs))
                running = [(number, Target.on_driver()) for number in numbers]
                for number, target in running:
                    target.do(f"launch {_FEWEST + number % _COUNTS}")
                    launched[target.pid] += target.calls
                    target.close()
            seconds = time.monotonic() - began
            # Who stops the agent at once asks also whether thousands of series can be delivered within its last seconds.
            deadline = time.monotonic() + _DELIVERED_S
            while time.monotonic() < deadline and _counted(sink).total() < launched.total():
                time.sleep(_INTERVAL_S / 5)
        counted = dict(_counted(sink))
    return ShortLives(dict(launched), counted, seconds)


def _counted(sink: Sink) -> Counter[int]:
    return Counter(sink.totals(cuda.KERNEL_LAUNCH_CALLS.name))


def main() -> int:
    """Print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.short_lives", description=__doc__)
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=20.0, help="programs that start in a second")
    arguments = parser.parse_args()
    if not pid_namespace.is_own():
        return pid_namespace.run("bench.short_lives", *sys.argv[1:])
    done = short_lives(arguments.programs, arguments.rate)
    print(f"{arguments.programs:,} programs in {done.seconds:.0f} s, {arguments.programs / done.seconds:.0f} a second")
    print(f"{sum(done.counted.values()):,} of {sum(done.launched.values()):,} launches counted")
    return faults.tell(done.faults(), most=20)


if __name__ == "__main__":
    sys.exit(main())
