"""How does a real OpenTelemetry Collector receive for a test?"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from otel_gpu.exporters.otlp.settings import Protocol
from tests.e2e import ground
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import DEADLINE_S

if TYPE_CHECKING:
    from typing_extensions import Self

_CONFIG = """
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: "127.0.0.1:{grpc}"}}
      http: {{endpoint: "127.0.0.1:{http}"}}
exporters:
  file: {{path: "{out}", flush_interval: 100ms}}
extensions:
  health_check: {{endpoint: "127.0.0.1:{health}"}}
service:
  extensions: [health_check]
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    {signal}: {{receivers: [otlp], exporters: [file]}}
"""
_START_S = 2 * DEADLINE_S
_PORTS = (10_000, 30_000)
"""Below those of connections that others make meanwhile, which begin at 32,768."""


def free_ports(count: int) -> list[int]:
    """Return loopback ports that nobody listens on, and that the kernel gives to nobody who asks for any."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(*_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
    return ports


GATES = "--feature-gates=service.profilesSupport"


class RunningCollector:
    """otelcol with a configuration that has the extension health_check."""

    def __init__(
        self, directory: Path, configs: Sequence[Path], health: int, environment: Mapping[str, str] = {}
    ) -> None:
        """`health` is the port where it says that it runs; several configurations are put together, as otelcol does it."""
        self._log = directory / "otelcol.log"
        command = [ground.part("collector"), GATES, *(f"--config={config}" for config in configs)]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, stderr=log, stdout=log, env={**os.environ, **environment})
        self._wait_healthy(health)

    def _wait_healthy(self, port: int) -> None:
        deadline = time.monotonic() + _START_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=1):
                    return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self._process.kill()
                    self._process.wait()
                    raise AssertionError(f"otelcol did not start ({error}): {self._log.read_text()}") from error
            time.sleep(0.05)

    def close(self) -> None:
        """End it: its file is whole then."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(_START_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Collector(RunningCollector):
    """otelcol with OTLP receivers on loopback, writing what it gets of one signal to a file."""

    def __init__(self, directory: Path, grpc_port: int | None = None, signal: str = "metrics") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        free, self.http_port, health = free_ports(3)
        self.grpc_port = grpc_port or free
        self.out = directory / f"{signal}.jsonl"
        config = directory / "otelcol.yaml"
        ports = {"grpc": self.grpc_port, "http": self.http_port, "health": health}
        config.write_text(_CONFIG.format(**ports, signal=signal, out=self.out))
        super().__init__(directory, [config], health)

    def endpoint(self, protocol: Protocol) -> str:
        """Return where it listens."""
        return f"http://127.0.0.1:{self.grpc_port if protocol == 'grpc' else self.http_port}"

    def stop(self) -> Metrics:
        """End it, and return the metrics that it received."""
        self.close()
        return read_metrics(self.out)
