"""Does a program mind that its observer is killed? `python -m bench.kills [--times 200] [--seed N]`.

The agent is started and ended with SIGKILL, as often as said: half of the times before it is ready, half after, while a
program launches without a pause. Each time the kernel must have taken every probe away, and no process of the agent may
be left. Then an agent that lives must count every launch. Exit code 1 where that is not so.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench import faults
from bench.agent_process import AgentProcess
from bench.ground import UnavailableError
from bench.holdings import is_link, links
from bench.sink import Sink
from bench.target import Target
from otel_gpu.signals import cuda

_LAUNCHES = 1000
_LONGEST_S = 1.0
"""How long an agent that is ready is let live, at the most."""
_GONE_S, _LOOK_S = 30.0, 0.01
_INTERVAL_S = 1.0


@dataclass(slots=True)
class Kills:
    """What came of killing agents."""

    gone_s: list[float] = field(default_factory=list)
    """How long after each kill the last of it was gone."""
    probes: int = 0
    """Links that the killed agents held."""
    left_behind: int = 0
    """How often something was there all the same after a long time."""
    meanwhile: int = 0
    """Launches of the program while agents came and went."""
    counted: int = 0
    """Of those that it made afterwards, by an agent that lived."""
    exit_code: int = 0

    def faults(self) -> Iterator[str]:
        """Say what was wrong."""
        if self.left_behind:
            yield f"{self.left_behind} agents left something behind"
        if self.counted != _LAUNCHES:
            yield f"{self.counted:,} of {_LAUNCHES:,} launches counted afterwards"
        if self.exit_code:
            yield f"the program ended with {self.exit_code}"


def kills(times: int, seed: int) -> Kills:
    """Start and kill agents so often."""
    chance, done = random.Random(seed), Kills()
    with Sink() as sink, Target.on_driver() as target:
        with target.launching():
            start_s = 1.0
            for number in range(times):
                agent = AgentProcess(sink.endpoint, _INTERVAL_S, [target.pid])
                if number % 2:
                    time.sleep(chance.random() * start_s)
                else:
                    # On a busy host it may be killed before it is ready all the same.
                    with contextlib.suppress(UnavailableError):
                        start_s = agent.wait_for("observing")
                    time.sleep(chance.random() * _LONGEST_S)
                agent.hold_still()
                probes, children = links(agent.pid), _descendants(agent.pid)
                agent.kill()
                done.probes += len(probes)
                _wait_gone(done, probes, children)
        done.meanwhile = target.calls
        with AgentProcess(sink.endpoint, _INTERVAL_S, [target.pid]) as agent:
            agent.wait_for("observing")
            before = sum(sink.totals(cuda.KERNEL_LAUNCH_CALLS.name).values())
            target.do(f"launch {_LAUNCHES}")
        done.counted = sum(sink.totals(cuda.KERNEL_LAUNCH_CALLS.name).values()) - before
        done.exit_code = target.close()
    return done


def _wait_gone(done: Kills, probes: set[int], children: set[int]) -> None:
    """Wait until nothing is left of an agent that was killed."""
    began = time.monotonic()
    while any(map(is_link, probes)) or any(os.path.exists(f"/proc/{child}") for child in children):
        if time.monotonic() - began > _GONE_S:
            done.left_behind += 1
            return
        time.sleep(_LOOK_S)
    done.gone_s.append(time.monotonic() - began)


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as children:
                found.update(map(int, children.read().split()))
    return found.union(*map(_descendants, found))


def main() -> int:
    """Print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.kills", description=__doc__)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    done = kills(arguments.times, arguments.seed)
    print(f"{arguments.times} agents with {done.probes:,} links killed; the program made {done.meanwhile:,} launches")
    if done.gone_s:
        middle = statistics.median(done.gone_s)
        print(f"nothing left of an agent after {middle:.3f} s in the middle, {max(done.gone_s):.3f} s at the most")
    print(f"{done.counted:,} of {_LAUNCHES:,} launches counted by an agent that lived")
    return faults.tell(done.faults())


if __name__ == "__main__":
    sys.exit(main())
