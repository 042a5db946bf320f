"""Whatever the other end does, SIGTERM ends the agent within ten seconds, and what was not delivered is counted."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import ground
from tests.e2e.processes import Agent
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


def _end(agent: Agent) -> float:
    with Stopwatch(agent.pid) as end:
        agent.process.send_signal(signal.SIGTERM)
        code = agent.wait()
    assert code == 0, agent.error_text
    assert "Traceback" not in agent.error_text
    return end.seconds()


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_backend_that_trickles_does_not_hold_up_the_end(
    tmp_path: Path, protocol: str, trickling: int, bystander: str
) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{trickling}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2000",
    }
    with Agent(["--pid", bystander], tmp_path, variables) as agent:
        agent.wait_watching()
        agent.wait_for("export of metrics to .* fails: ")

        assert _end(agent) < _END_S


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_name_that_is_never_found_does_not_hold_up_the_end(tmp_path: Path, protocol: str, bystander: str) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.example:4318",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2000",
    }
    with Agent(
        ["--pid", bystander], tmp_path, variables, within=[sys.executable, ground.PROGRAMS / "without_names.py"]
    ) as agent:
        agent.wait_watching()
        agent.wait_for("export of metrics to .* fails: .*no answer within|DEADLINE")

        assert _end(agent) < _END_S


def test_an_output_that_nobody_reads_does_not_hold_up_the_end(bystander: str) -> None:
    command = [sys.executable, "-m", "otel_gpu", "run", "--pid", bystander, "--output", "console"]
    environment = {"OTEL_METRIC_EXPORT_INTERVAL": "20", "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    ) as process:
        while "export to the console fails: nobody reads it" not in (line := process.stderr.readline()):
            assert line, "the agent ended"
        with Stopwatch(process.pid) as end:
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)

        assert end.seconds() < _END_S
        assert code == 0
        process.stdout.read()
