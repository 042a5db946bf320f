"""Whatever the other end does, SIGTERM ends the agent within ten seconds, and what was not delivered is counted."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.e2e import ground
from tests.e2e.collector import free_ports
from tests.e2e.processes import Agent, Program
from tests.stopwatch import Stopwatch

_END_S = 10.0


@pytest.fixture
def trickling() -> Iterator[int]:
    """A server on which every answer takes for ever, a byte at a time."""
    server = socket.create_server(("127.0.0.1", 0), backlog=64)

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while True:
                    connection.sendall(b"x")
                    time.sleep(0.05)
            except OSError:
                pass  # the agent has gone

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@pytest.fixture
def bystander() -> Iterator[str]:
    """A process to look at: others of this host could keep the agent busy as it ends."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield str(process.pid)
        process.kill()


@pytest.fixture
def silent() -> Iterator[int]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server.getsockname()[1]


_EXPORTERS = """\
  otlp_grpc/{name}: {{endpoint: "http://{address}", timeout: 2s}}
  otlp_http/{name}: {{endpoint: "http://{address}", timeout: 2s}}
"""


def _sending(directory: Path, backends: Mapping[str, str], program: Program, *within: str | Path) -> Agent:
    """Make an agent that sends to each of the backends, which have addresses by name, over gRPC and over HTTP."""
    directory.mkdir()
    exporters = "".join(_EXPORTERS.format(name=name, address=address) for name, address in backends.items())
    config = directory / "agent.yaml"
    config.write_text(f"exporters:\n{exporters}service: {{interval: 500ms}}\n")
    return Agent(["--config", config, "--pid", str(program.pid)], directory, within=within)


def _wait_for_failures(agent: Agent, address: str, why: str = "") -> None:
    for path in ("", "/v1/metrics"):
        agent.wait_for(rf"export of metrics to (http://)?{re.escape(address + path)} fails: {why}")


def test_no_backend_stops_the_agent_or_holds_up_the_end(tmp_path: Path, trickling: int, silent: int) -> None:
    """All at once, for each may take the whole time of an end. Names are never found in a network of the agent's own."""
    (refusing,) = free_ports(1)
    backends = {
        "refusing": f"127.0.0.1:{refusing}",
        "silent": f"127.0.0.1:{silent}",
        "trickling": f"127.0.0.1:{trickling}",
    }
    nameless = {"nameless": "collector.example:4318"}
    without_names = sys.executable, ground.PROGRAMS / "without_names.py"
    storm = [ground.part("programs") / "launch_storm", "--gate", "--phases", "2"]
    with Program(storm, tmp_path) as program:
        program.ready()
        with (
            _sending(tmp_path / "host", backends, program) as agent,
            _sending(tmp_path / "own", nameless, program, *without_names) as apart,
        ):
            agents = agent, apart
            for one in agents:
                one.wait_attached()
            program.run_phase()
            program.ready()
            for address in backends.values():
                _wait_for_failures(agent, address)
            _wait_for_failures(apart, nameless["nameless"], ".*(no answer within|DEADLINE)")
            with Stopwatch(agent.pid, apart.pid) as end:
                for one in agents:
                    one.process.send_signal(signal.SIGTERM)
                codes = [one.wait() for one in agents]
        program.run_phase()
        assert program.finish().launches.total() == 2000

    # No backend took anything: that is said in a line, not in a traceback.
    assert codes == [1, 1], agent.error_text + apart.error_text
    for one in agents:
        assert "nothing could be delivered to anybody" in one.error_text
        assert "Traceback" not in one.error_text
    assert end.seconds() < _END_S


def test_an_output_that_nobody_reads_does_not_hold_up_the_end(bystander: str) -> None:
    command = [sys.executable, "-m", "otel_gpu", "run", "--pid", bystander, "--output", "console"]
    environment = {"OTEL_METRIC_EXPORT_INTERVAL": "20", "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        errors="replace",  # what a full pipe took may end within a letter
    ) as process:
        while "export to the console fails: nobody reads it" not in (line := process.stderr.readline()):
            assert line, "the agent ended"
        with Stopwatch(process.pid) as end:
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)

        assert end.seconds() < _END_S
        assert code == 0
        process.stdout.read()
