"""How large is the agent, and how soon is it there?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack

from bench import ground
from bench.agent_process import AgentProcess
from bench.ground import UnavailableError
from bench.results import Result
from bench.sink import Sink
from bench.target import Target
from otel_gpu.signals import cuda

_INTERVAL_S = 1.0
_LAUNCHES = 320
_SETTLE_REQUESTS = 3
_DEADLINE_S = 60.0
_LIMITS_MB = {1: (80.0, 60.0), 64: (110.0, 70.0)}


def measure(starts: int) -> Iterator[Result]:
    """Measure memory with one and with many processes, then the start."""
    for processes, (must, aim) in _LIMITS_MB.items():
        rss = _rss_mb(processes)
        what = "one process" if processes == 1 else f"{processes} processes"
        yield Result(f"agent memory (RSS), {what}", f"{rss:.1f} MB", "", rss, "MB", must, aim)
    times = [_start_s() for _ in range(starts)]
    yield Result(
        "start to first probes attached, driver already mapped",
        f"{statistics.median(times):.2f} s",
        "",
        statistics.median(times),
        "s",
        must=1.5,
        aim=0.5,
        note=f"median of {starts}, {min(times):.2f} to {max(times):.2f} s; to the end of attachment",
    )


def _rss_mb(processes: int) -> float:
    with ExitStack() as stack:
        targets = [stack.enter_context(Target.on_driver()) for _ in range(processes)]
        sink = stack.enter_context(Sink())
        agent = stack.enter_context(AgentProcess(sink.endpoint, _INTERVAL_S, [target.pid for target in targets]))
        agent.wait_for("observing")
        deadline = time.monotonic() + _DEADLINE_S
        pids = {target.pid for target in targets}
        for target in targets:
            target.do(f"launch {_LAUNCHES}")
        while not pids <= sink.totals(cuda.KERNEL_LAUNCH_CALLS.name).keys():
            if time.monotonic() > deadline:
                missing = pids - sink.totals(cuda.KERNEL_LAUNCH_CALLS.name).keys()
                raise UnavailableError(f"{len(missing)} of {processes} processes were never exported: {agent.log()}")
            time.sleep(_INTERVAL_S)
        settled = sink.requests + _SETTLE_REQUESTS
        while sink.requests < settled and time.monotonic() < deadline:
            time.sleep(_INTERVAL_S)
        return agent.rss_bytes() / 1e6


def _start_s() -> float:
    with Sink() as sink, Target.on_driver(), AgentProcess(sink.endpoint) as agent:
        return agent.wait_attached(str(ground.mock_driver()))
