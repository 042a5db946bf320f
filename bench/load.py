"""What does the agent do under load? Its CPU at steady launch rates, and whether a launch is ever lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from bench.agent_process import AgentProcess
from bench.results import Result
from bench.sink import Sink
from bench.target import Target
from otel_gpu.signals import cuda

INTERVAL_S = 10.0
_FEW, _MANY, _MOST = 10_000, 100_000, 500_000
_STORM = 2_000_000


@dataclass(frozen=True, slots=True)
class Window:
    """One interval at one rate; shares of a core."""

    cpu: float
    discovery: float
    """Of it, to hear of the processes of the whole host, which launches do not touch; 0 where it cannot be told."""
    launches_per_s: float
    forks_per_s: float
    """Threads and processes that the host started: what discovery has to look at."""

    @property
    def counting(self) -> float:
        """Everything else: to read, export, and wait."""
        return self.cpu - self.discovery


def measure(rounds: int) -> Iterator[Result]:
    """Measure an agent in its steady state: windows of one interval at each rate, in turns."""
    with Sink() as sink, Target.on_driver() as target:
        with AgentProcess(sink.endpoint, INTERVAL_S, [target.pid]) as agent:
            agent.wait_for("observing")
            target.do(f"pace {_FEW} {2 * INTERVAL_S * 1000:.0f}")  # the first exports build what later ones keep
            windows = _windows(agent, target, rounds)
            threads = os.cpu_count() or 1
            storm = target.do(f"storm {threads} {_STORM}")
            truth = target.calls
        exported = sink.totals(cuda.KERNEL_LAUNCH_CALLS.name).get(target.pid, 0)
    # The best windows: what else the machine does only adds.
    idle, many = (min(windows[rate], key=lambda w: w.cpu) for rate in (0, _MANY))
    few, most = (min(windows[rate], key=lambda w: w.counting) for rate in (_FEW, _MOST))
    yield Result(
        f"agent CPU at {many.launches_per_s:,.0f} launches/s",
        f"{many.cpu:.2%}",
        "a core",
        many.cpu * 100,
        "%",
        must=0.3,
        aim=0.2,
        note=f"{many.discovery:.2%} of it to hear of the whole host's processes, which started {many.forks_per_s:.0f} "
        f"threads a second; without any launch {idle.cpu:.2%} ({idle.forks_per_s:.0f}/s); export every {INTERVAL_S:.0f} s",
    )
    yield Result(
        f"agent CPU at {most.launches_per_s:,.0f}/s over {few.launches_per_s:,.0f}/s",
        f"{most.counting:.2%}",
        f"{few.counting:.2%}",
        most.counting / few.counting,
        must=1.5,
        aim=1.1,
        note=f"without hearing of the host's processes; with it {most.cpu:.2%} over {few.cpu:.2%}",
    )
    yield Result(
        f"launches lost at {storm.calls / storm.ns * 1e9:,.0f}/s ({threads} threads)",
        f"{exported:,}",
        f"{truth:,}",
        truth - exported,
        "",
        must=0,
        aim=0,
        note="exported by OTLP against what the program did, all rates together"
        + ("" if exported == truth else f"; the agent's last words: {' '.join(agent.log().splitlines()[-3:])}"),
    )


def _windows(agent: AgentProcess, target: Target, rounds: int) -> dict[int, list[Window]]:
    rates = (0, _FEW, _MANY, _MOST)
    windows: dict[int, list[Window]] = {rate: [] for rate in rates}
    for number in range(rounds):
        for rate in rates if number % 2 == 0 else rates[::-1]:
            cpu, discovery, forks = agent.cpu_s(), agent.discovery_cpu_s(), _forks()
            answer = target.do(f"pace {rate} {INTERVAL_S * 1000:.0f}")
            seconds = answer.ns / 1e9
            windows[rate].append(
                Window(
                    (agent.cpu_s() - cpu) / seconds,
                    (agent.discovery_cpu_s() - discovery) / seconds,
                    answer.calls / seconds,
                    (_forks() - forks) / seconds,
                )
            )
    return windows


def _forks() -> int:
    with open("/proc/stat", encoding="ascii") as stat:
        return next(int(line.split()[1]) for line in stat if line.startswith("processes "))
