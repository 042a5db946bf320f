"""Do the series of a program that is killed end? In Prometheus, by the agent's own exporter and through a real Collector."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e import ground
from tests.e2e.processes import DEADLINE_S, Agent
from tests.e2e.scraping import Prometheus
from tests.e2e.test_ledger import Script, start
from tests.e2e.test_prometheus import scraped

_SIZE = 53_687_091
_USAGE = 'gpu_cuda_memory_usage_bytes{job="holder"}'
_INTERVAL_MS = 3_000
"""Longer than Prometheus's, so that it sees every export."""


def _wait_for(prometheus: Prometheus, query: str, value: float, agent: Agent) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while [one.value for one in prometheus.query(query)] != [value]:
        assert time.monotonic() < deadline, f"{query}: {prometheus.query(query)}, not {value}; {agent.error_text}"
        time.sleep(0.2)


@pytest.mark.parametrize("way", ["agent", "collector"])
def test_the_series_of_killed_programs_end(tmp_path: Path, way: str) -> None:
    config = tmp_path / "agent.yaml"
    with ExitStack() as running:
        port, exporters = running.enter_context(scraped(way, tmp_path))
        config.write_text(exporters)
        prometheus = running.enter_context(
            Prometheus(ground.prometheus(), tmp_path / "prometheus", [f"127.0.0.1:{port}"])
        )
        programs = [running.enter_context(start(tmp_path, OTEL_SERVICE_NAME="holder")) for _ in range(4)]
        for program in programs:
            program.ready()
        pids = [word for program in programs for word in ("--pid", str(program.pid))]
        interval = {"OTEL_METRIC_EXPORT_INTERVAL": str(_INTERVAL_MS)}
        with Agent([*pids, "--config", str(config)], tmp_path, interval) as agent:
            agent.wait_attached()
            for program in programs:
                assert Script(program).do(0, "allocate", "device", _SIZE)[0] == 0
            _wait_for(prometheus, f"sum({_USAGE})", len(programs) * _SIZE, agent)

            for program in programs[1:]:
                program.process.kill()
                program.process.wait()
            _wait_for(prometheus, f"sum({_USAGE})", _SIZE, agent)
            # Nothing is left of what they held. What they did stays until Prometheus has asked for it.
            _wait_for(prometheus, f"count({_USAGE})", 1, agent)
            last = prometheus.query(f"min_over_time({_USAGE}[1h])")

    assert sorted(one.value for one in last) == [0, 0, 0, _SIZE]
