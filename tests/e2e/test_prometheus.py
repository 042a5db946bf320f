"""Does a real Prometheus that scrapes the agent say what the program did?"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.e2e import ground
from tests.e2e.collector import free_ports
from tests.e2e.processes import DEADLINE_S, Agent, Program

_CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: otel-gpu
    honor_labels: true
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


@contextlib.contextmanager
def _prometheus(directory: Path, scraped: int) -> Iterator[str]:
    """Run Prometheus, and give its address."""
    directory.mkdir()
    config = directory / "prometheus.yml"
    config.write_text(_CONFIG.format(port=scraped))
    [port] = free_ports(1)
    command = [
        ground.prometheus(),
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _query(prometheus: str, promql: str) -> list[tuple[dict[str, str], float]]:
    url = f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': promql})}"
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        found = json.load(answer)["data"]["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]
    return []


def test_what_a_real_prometheus_scrapes_is_what_the_program_did(tmp_path: Path) -> None:
    [port] = free_ports(1)
    config = tmp_path / "agent.yaml"
    config.write_text(f"exporters: {{prometheus: {{endpoint: 'localhost:{port}'}}}}")
    storm = [ground.part("programs") / "launch_storm", "--launches", "1000", "--phases", "2", "--gate"]
    with (
        _prometheus(tmp_path / "prometheus", port) as prometheus,
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
            while not (launches := _query(prometheus, wanted)) or not launches[0][1]:
                assert time.monotonic() < deadline, agent.error_text
                time.sleep(0.2)
            joined = _query(
                prometheus,
                f'sum(gpu_cuda_kernel_launch_calls_total * on(job, instance) group_left target_info{{process_pid="{program.pid}"}})',
            )
            median = _query(
                prometheus,
                "histogram_quantile(0.5, sum by (le) (gpu_cuda_kernel_block_size_bucket))",
            )
            jobs = {labels["job"] for labels, _ in _query(prometheus, 'count by (job) ({__name__=~".+"})')}
            url = f"http://127.0.0.1:{port}/metrics"
            with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
                text = answer.read()
        program.run_phase()
        program.finish()

    assert launches[0][1] == joined[0][1] == sum(truth.launches.values())
    assert median[0][1] > 0
    assert {"trainer", "otel-gpu"} <= jobs
    checked = subprocess.run([ground.promtool(), "check", "metrics"], input=text, capture_output=True, check=False)
    assert checked.returncode in (0, 3), checked.stderr  # 3: lint, such as a name without a unit
