"""How much memory does the agent need, the kernel's part included? `python -m bench.memory [--limits MB ...]`.

Starts the agent in a control group without a limit and with smaller and smaller ones, with and without profiles, beside a
program that launches, and prints what was taken at the most, and whether every launch was counted.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from bench.agent_process import AgentProcess
from bench.ground import UnavailableError
from bench.memory_group import memory_group
from bench.sink import Sink
from bench.target import Target
from otel_gpu.signals import cuda

_LAUNCHES, _INTERVAL_S, _MB = 10_000, 1.0, 1_000_000
_LIMITS_MB = (300, 200, 150, 100)


@dataclass(frozen=True, slots=True)
class Stay:
    """What came of an agent in a group."""

    peak_bytes: int
    counted: int
    log: str


def stay(limit_mb: int | None, *, profiles: bool) -> Stay:
    """Let an agent count launches in a group with so much memory."""
    arguments = ["--profiles"] if profiles else []
    counted, log = 0, ""
    with memory_group(None if limit_mb is None else limit_mb * _MB) as group:
        with Sink() as sink, Target.on_driver() as target:
            try:
                with AgentProcess(
                    sink.endpoint, _INTERVAL_S, [target.pid], arguments=arguments, entering=group.entering
                ) as agent:
                    agent.wait_for("observing")
                    target.do(f"storm 4 {_LAUNCHES // 4}")
                log = agent.log()
            except UnavailableError as e:
                log = str(e)
            counted = sum(sink.totals(cuda.KERNEL_LAUNCH_CALLS.name).values())
        return Stay(group.peak_bytes(), counted, log)


def main() -> int:
    """Print a row for each limit."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--limits", type=int, nargs="*", default=_LIMITS_MB, metavar="MB")
    arguments = parser.parse_args()
    print("limit MB  profiles  peak MB  launches counted")
    for profiles in (False, True):
        for limit_mb in (None, *arguments.limits):
            done = stay(limit_mb, profiles=profiles)
            counted = f"{done.counted:,} of {_LAUNCHES:,}"
            print(f"{limit_mb or 'none':>8}  {profiles!s:>8}  {done.peak_bytes / _MB:7.0f}  {counted}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
