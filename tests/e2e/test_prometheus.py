"""Does a real Prometheus that scrapes the agent say what the program did?"""

from __future__ import annotations

import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.e2e import ground
from tests.e2e.collector import RunningCollector, free_ports
from tests.e2e.processes import DEADLINE_S, Agent, Program
from tests.e2e.scraping import Prometheus
from tests.e2e.test_prometheus_names import COLLECTOR

_DOCUMENTATION = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_what_a_real_prometheus_scrapes_is_what_the_program_did(tmp_path: Path) -> None:
    [port] = free_ports(1)
    config = tmp_path / "agent.yaml"
    config.write_text(f"exporters: {{prometheus: {{endpoint: 'localhost:{port}'}}}}")
    storm = [ground.part("programs") / "launch_storm", "--launches", "1000", "--phases", "2", "--gate"]
    with (
        Prometheus(ground.prometheus(), tmp_path / "prometheus", [f"127.0.0.1:{port}"]) as prometheus,
        Program(storm, tmp_path, {"OTEL_SERVICE_NAME": "trainer"}) as program,
    ):
        program.ready()
        with Agent(["--pid", str(program.pid), "--config", str(config)], tmp_path) as agent:
            agent.wait_attached()
            program.run_phase()
            program.ready()
            truth = program.truth_now()
            wanted = 'sum(gpu_cuda_kernel_launch_calls_total{job="trainer"})'
            deadline = time.monotonic() + DEADLINE_S
            while not (launches := prometheus.query(wanted)) or not launches[0].value:
                assert time.monotonic() < deadline, agent.error_text
                time.sleep(0.2)
            joined = prometheus.query(
                f'sum(gpu_cuda_kernel_launch_calls_total * on(job, instance) group_left target_info{{process_pid="{program.pid}"}})',
            )
            median = prometheus.query("histogram_quantile(0.5, sum by (le) (gpu_cuda_kernel_block_size_bucket))")
            jobs = {one.labels["job"] for one in prometheus.query('count by (job) ({__name__=~".+"})')}
            url = f"http://127.0.0.1:{port}/metrics"
            with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
                text = answer.read()
        program.run_phase()
        program.finish()

    assert launches[0].value == joined[0].value == sum(truth.launches.values())
    assert median[0].value > 0
    assert {"trainer", "otel-gpu"} <= jobs
    checked = subprocess.run([ground.promtool(), "check", "metrics"], input=text, capture_output=True, check=False)
    assert checked.returncode in (0, 3), checked.stderr  # 3: lint, such as a name without a unit


def _documented_join() -> str:
    """Return the query that docs/configuration.md shows."""
    [query] = re.findall(r"^    (sum by .*\n\s+\* on .*target_info\))$", _DOCUMENTATION.read_text(), re.MULTILINE)
    return str(query)


@contextmanager
def scraped(way: str, directory: Path) -> Iterator[tuple[int, str]]:
    """Have an exporter of the agent or a Collector's scraped; yield its port and what the agent is configured with."""
    grpc, scraped, health = free_ports(3)
    if way == "agent":
        yield scraped, f"exporters: {{prometheus: {{endpoint: 'localhost:{scraped}'}}}}"
        return
    config = directory / "otelcol.yaml"
    config.write_text(COLLECTOR.format(grpc=grpc, scraped=scraped, health=health))
    with RunningCollector(directory, [config], health):
        yield scraped, f"exporters: {{otlp: {{endpoint: 'http://127.0.0.1:{grpc}', histograms: explicit}}}}"


@pytest.mark.parametrize("way", ["agent", "collector"])
def test_two_programs_that_claim_one_instance_are_two_targets(tmp_path: Path, way: str) -> None:
    config = tmp_path / "agent.yaml"
    claims = {"OTEL_RESOURCE_ATTRIBUTES": "service.name=trainer,service.instance.id=rank"}
    with ExitStack() as running:
        port, exporters = running.enter_context(scraped(way, tmp_path))
        config.write_text(exporters)
        prometheus = running.enter_context(
            Prometheus(ground.prometheus(), tmp_path / "prometheus", [f"127.0.0.1:{port}"])
        )
        counts = (100, 300)
        programs = []
        for launches in counts:
            storm = [ground.part("programs") / "launch_storm", "--launches", str(launches), "--phases", "3", "--gate"]
            programs.append(running.enter_context(Program(storm, tmp_path, claims)))
            programs[-1].ready()
        pids = [word for program in programs for word in ("--pid", str(program.pid))]
        wanted = """sum by (process_pid) (gpu_cuda_kernel_launch_calls_total{job="trainer"}
            * on (job, instance) group_left (process_pid) target_info)"""
        with Agent([*pids, "--config", str(config)], tmp_path) as agent:
            agent.wait_attached()
            for phase in (1, 2):
                for program in programs:
                    program.run_phase()
                    program.ready()
                expected = {str(program.pid): phase * n for program, n in zip(programs, counts, strict=True)}
                deadline = time.monotonic() + DEADLINE_S
                while {one.labels["process_pid"]: one.value for one in prometheus.query(wanted)} != expected:
                    assert time.monotonic() < deadline, agent.error_text
                    time.sleep(0.2)
            joined = prometheus.query(_documented_join())
            instances = {one.labels["instance"] for one in prometheus.query('target_info{job="trainer"}')}
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S) as answer:
                samples = [line.rpartition(" ")[0] for line in answer.read().decode().splitlines() if line[0] != "#"]
        for program in programs:
            program.run_phase()
            program.finish()

    assert "rank" in instances
    assert instances < {"rank", *(f"rank/{pid}" for pid in expected)}
    assert {"launch_storm"} == {Path(one.labels["process_command"]).name for one in joined if one.value > 0}
    assert len(samples) == len(set(samples))
