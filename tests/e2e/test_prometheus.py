"""Does a real Prometheus that scrapes the agent say what the program did?"""

from __future__ import annotations

import subprocess
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from tests.e2e import ground
from tests.e2e.collector import free_ports
from tests.e2e.processes import DEADLINE_S, Agent, Program
from tests.e2e.scraping import Prometheus


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


def test_two_programs_that_claim_one_instance_are_two_targets(tmp_path: Path) -> None:
    [port] = free_ports(1)
    config = tmp_path / "agent.yaml"
    config.write_text(f"exporters: {{prometheus: {{endpoint: 'localhost:{port}'}}}}")
    claims = {"OTEL_RESOURCE_ATTRIBUTES": "service.name=trainer,service.instance.id=rank"}
    with (
        Prometheus(ground.prometheus(), tmp_path / "prometheus", [f"127.0.0.1:{port}"]) as prometheus,
        ExitStack() as running,
    ):
        counts = (100, 300)
        programs = []
        for launches in counts:
            storm = [ground.part("programs") / "launch_storm", "--launches", str(launches), "--phases", "2", "--gate"]
            programs.append(running.enter_context(Program(storm, tmp_path, claims)))
            programs[-1].ready()
        pids = [word for program in programs for word in ("--pid", str(program.pid))]
        with Agent([*pids, "--config", str(config)], tmp_path) as agent:
            agent.wait_attached()
            for program in programs:
                program.run_phase()
                program.ready()
            wanted = """sum by (process_pid) (gpu_cuda_kernel_launch_calls_total{job="trainer"}
                * on (job, instance) group_left (process_pid) target_info)"""
            expected = {str(program.pid): count for program, count in zip(programs, counts, strict=True)}
            deadline = time.monotonic() + DEADLINE_S
            while {one.labels["process_pid"]: one.value for one in prometheus.query(wanted)} != expected:
                assert time.monotonic() < deadline, agent.error_text
                time.sleep(0.2)
            instances = {one.labels["instance"] for one in prometheus.query('target_info{job="trainer"}')}
        for program in programs:
            program.run_phase()
            program.finish()

    assert "rank" in instances
    assert instances < {"rank", *(f"rank/{pid}" for pid in expected)}
