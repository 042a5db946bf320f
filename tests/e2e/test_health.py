"""What does the health endpoint of a running agent say?"""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.e2e import ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import DEADLINE_S, Agent, Program

_CONFIG = """
extensions: {{health_check: {{endpoint: "localhost:0", path: /health}}}}
exporters: {{file: {{path: {out}}}}}
service: {{extensions: [health_check], interval: 300ms}}
"""


def _ask(address: str, path: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"{address}{path}", timeout=DEADLINE_S) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as e:
        with e:
            return e.code, json.loads(e.read() or b"{}")


def test_a_running_agent_is_live_and_ready_and_all_its_parts_work(tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(_CONFIG.format(out=tmp_path / "out"))
    storm = [ground.part("programs") / "launch_storm", "--gate", "--launches", "1000", "--phases", "2"]
    with Program(storm, tmp_path) as program:
        program.ready()
        with Agent(["--config", config, "--pid", str(program.pid)], tmp_path) as agent:
            address = agent.wait_for("health is told at").split(" at ")[1].strip().removesuffix("/health")
            agent.wait_attached()
            program.run_phase()
            program.ready()
            deadline = time.monotonic() + DEADLINE_S
            while (answer := _ask(address, "/health"))[0] != 200:
                assert time.monotonic() < deadline, answer
                time.sleep(0.1)
            components = answer[1]["components"]
            assert [_ask(address, f"/health/{path}")[0] for path in ("live", "ready", "none")] == [200, 200, 404]
            # Somebody who holds a connection does not hold up the end.
            agent.process.send_signal(signal.SIGTERM)
            assert agent.wait() == 0, agent.error_text
        program.go()
        program.finish()

    assert {"collect", "cuda", "events", "self", "processors", "series", "export file"} <= components.keys()
    assert (
        components.keys() == read_metrics(tmp_path / "out").by("otel_gpu.component.health", "otel_gpu.component").keys()
    )
