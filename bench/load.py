"""What does the agent do under load? Its CPU at steady launch rates, and whether a launch is ever lost."""

from __future__ import annotations

import os
from collections.abc import Iterator

from bench import ground
from bench.agent_process import AgentProcess
from bench.results import Result
from bench.sink import Sink
from bench.target import Target
from otel_gpu import telemetry

INTERVAL_S = 10.0
_FEW, _MANY, _MOST = 10_000, 100_000, 500_000
_STORM = 2_000_000


def measure(windows: int) -> Iterator[Result]:
    """Measure an agent in its steady state: windows of one interval at each rate, in turns."""
    with Sink() as sink, Target.on_driver() as target:
        with AgentProcess(sink.endpoint, INTERVAL_S) as agent:
            agent.wait_attached(str(ground.mock_driver()))
            agent.wait_for("observing")
            target.do(f"pace {_FEW} {2 * INTERVAL_S * 1000:.0f}")  # the first exports build what later ones keep
            cpu, reached = _cpu(agent, target, windows)
            threads = os.cpu_count() or 1
            storm = target.do(f"storm {threads} {_STORM}")
            truth = target.calls
        exported = sink.totals(telemetry.KERNEL_LAUNCH_CALLS.name).get(target.pid, 0)
    idle = f"idle {cpu[0]:.2%}"
    yield Result(
        f"agent CPU at {reached[_MANY]:,.0f} launches/s",
        _percent(cpu[_MANY]),
        "a core",
        cpu[_MANY] * 100,
        "%",
        must=1,
        aim=0.3,
        note=f"all of this host is watched; {idle}; export every {INTERVAL_S:.0f} s",
    )
    yield Result(
        f"agent CPU at {reached[_MOST]:,.0f}/s over {reached[_FEW]:,.0f}/s",
        _percent(cpu[_MOST]),
        _percent(cpu[_FEW]),
        cpu[_MOST] / cpu[_FEW],
        must=1.5,
        aim=1.1,
        note=idle,
    )
    yield Result(
        f"launches lost at {storm.calls / storm.ns * 1e9:,.0f}/s ({threads} threads)",
        f"{exported:,}",
        f"{truth:,}",
        truth - exported,
        "",
        must=0,
        aim=0,
        note="exported by OTLP against what the program did, all rates together",
    )


def _cpu(agent: AgentProcess, target: Target, windows: int) -> tuple[dict[int, float], dict[int, float]]:
    """Return the share of a core by rate, and the rates that the machine reached. Best windows: noise only adds."""
    rates = (0, _FEW, _MANY, _MOST)
    best = dict.fromkeys(rates, float("inf"))
    reached = dict.fromkeys(rates, 0.0)
    for window in range(windows):
        for rate in rates if window % 2 == 0 else rates[::-1]:
            before = agent.cpu_s()
            answer = target.do(f"pace {rate} {INTERVAL_S * 1000:.0f}")
            used = (agent.cpu_s() - before) / (answer.ns / 1e9)
            best[rate] = min(best[rate], used)
            reached[rate] = max(reached[rate], answer.calls / answer.ns * 1e9)
    return best, reached


def _percent(share: float) -> str:
    return f"{share:.2%}"
