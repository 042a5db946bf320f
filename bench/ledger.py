"""What becomes of a million live allocations? Known and lost ones, the rate they come at, their memory and their end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from bench.agent_process import AgentProcess
from bench.ground import UnavailableError
from bench.results import Result
from bench.sink import Sink
from bench.target import Target
from otel_gpu.bpf.abi.memory import LIVE, LIVE_KEY
from otel_gpu.signals import cuda, self_metrics

_LIVE = 1_000_000
_BYTES = 512  # of each, as calls.c has it
_PAIRS = 1_000_000
_INTERVAL_S = 1.0
_DEADLINE_S = 60.0
_LOOK_S = 0.05
_SETTLE_REQUESTS = 2


def measure(rounds: int) -> Iterator[Result]:
    """Measure as many rounds of allocations and frees while all of the others live."""
    with Sink() as sink, Target.on_driver() as target:
        with AgentProcess(sink.endpoint, _INTERVAL_S, [target.pid]) as agent:
            agent.wait_for("observing")
            empty, slab = _table_bytes(agent), _slab_bytes()
            held = target.do(f"hold {_LIVE}").calls
            full, slab = _table_bytes(agent), _slab_bytes() - slab
            rates = [_rate(target, threads) for _ in range(rounds) for threads in {1, os.cpu_count() or 1}]
            known = _known(sink, target, held)
            cpu = agent.cpu_s()
            target.close()
            waited = _wait_emptied(agent, (empty + full) // 2)
            cpu = agent.cpu_s() - cpu
        lost = sum(sink.totals(self_metrics.EVENTS_LOST.name).values())
    yield Result(
        f"live allocations not known, of {held:,}",
        f"{known:,}",
        f"{held:,}",
        abs(held - known),
        "",
        must=0,
        aim=0,
        note=f"gpu.cuda.memory.usage by OTLP, after {len(rates) * _PAIRS:,} further ones that were freed",
    )
    yield Result(
        "alloc/free pairs a second meanwhile",
        f"{max(rates):,.0f}",
        "",
        max(rates),
        "/s",
        must=100_000,
        at_least=True,
        note=f"as fast as the machine and the mock driver make them: {min(rates):,.0f} to {max(rates):,.0f}",
    )
    yield Result("events lost", f"{lost}", "", lost, "", must=0, aim=0, note="all of otel_gpu.events.lost")
    yield Result(
        "kernel memory per live allocation",
        f"{full / held:.0f} B",
        "",
        full / held,
        "B",
        must=200,
        note=f"the whole table, {empty / 1e6:.0f} MB of it when empty; the host's slabs grew by {slab / held:.0f} B each",
    )
    yield Result(
        f"forgetting a program that ended with {held:,}",
        f"{cpu:.2f} s",
        "",
        cpu,
        "s",
        must=2,
        note=f"the agent's CPU time until the table was empty, {waited:.1f} s after the end; exports every {_INTERVAL_S:.0f} s",
    )


def _rate(target: Target, threads: int) -> float:
    answer = target.do(f"churn {threads} {_PAIRS // threads}")
    return answer.calls / answer.ns * 1e9


def _known(sink: Sink, target: Target, held: int) -> int:
    """Return how many allocations the agent says are live, once it has had the time to say so."""
    settled, known = sink.requests + _SETTLE_REQUESTS, -1
    deadline = time.monotonic() + _DEADLINE_S
    while (known != held or sink.requests < settled) and time.monotonic() < deadline:
        time.sleep(_INTERVAL_S)
        known = sink.totals(cuda.MEMORY_USAGE.name).get(target.pid, 0) // _BYTES
    return known


def _wait_emptied(agent: AgentProcess, below: int) -> float:
    began = time.monotonic()
    while _table_bytes(agent) > below:
        if time.monotonic() - began > _DEADLINE_S:
            raise UnavailableError("the agent never forgot the program")
        time.sleep(_LOOK_S)
    return time.monotonic() - began


def _table_bytes(agent: AgentProcess) -> int:
    """Return what the kernel says the table of live allocations takes; it counts entries since 6.4."""
    for info in Path(f"/proc/{agent.pid}/fdinfo").iterdir():
        lines = (line.partition(":") for line in info.read_text().splitlines())
        said = {name: value.strip() for name, _, value in lines}
        sizes = (said.get("key_size"), said.get("value_size"))
        # Of the tables with such keys and values it is the only one.
        if sizes == (str(LIVE_KEY.itemsize), str(LIVE.itemsize)):
            return int(said["memlock"])
    raise UnavailableError("the agent has no table of live allocations")


def _slab_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as meminfo:
        return next(int(line.split()[1]) for line in meminfo if line.startswith("Slab:")) * 1024
