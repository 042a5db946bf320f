"""How does a real OpenTelemetry Collector receive for a test?"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import socket
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, get_args

from otel_gpu.exporters.otlp.settings import Protocol
from otel_gpu.signals import Signal
from tests.e2e import ground
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import DEADLINE_S

if TYPE_CHECKING:
    from typing_extensions import Self

Way = Literal["grpc", "http"]
_MARKS = "marks"
_PATHS: dict[Signal, str] = {
    "metrics": "/v1/metrics",
    "traces": "/v1/traces",
    "profiles": "/v1development/profiles",
}
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Whatever proxy the environment names."""
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
    """otelcol with OTLP receivers on loopback, which many tests share: a file for each signal and way that it comes.

    A mark in each file parts the data of one test from those of the next. The Collector writes what it has accepted in
    order, so all that was accepted before a mark stands before it.
    """

    def __init__(
        self, directory: Path, grpc_port: int | None = None, signals: Sequence[Signal] = get_args(Signal)
    ) -> None:
        """`signals` are those that it has pipelines of."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        free, http_port, self._marks_port, health = free_ports(4)
        self._ports: dict[Way, int] = {"grpc": grpc_port or free, "http": http_port}
        self._read = {(signal, way): 0 for signal in signals for way in self._ports}
        """How far each file has been read, in bytes."""
        self._mark = f"mark {uuid.uuid4()}".encode()
        self._numbers = itertools.count(1)
        config = directory / "otelcol.yaml"
        config.write_text(json.dumps(self._config(health)))
        super().__init__(directory, [config], health)

    def _config(self, health: int) -> dict[str, Any]:
        ports = {**self._ports, _MARKS: self._marks_port}
        return {
            "receivers": {
                f"otlp/{name}": {"protocols": {"grpc" if name == "grpc" else "http": {"endpoint": f"127.0.0.1:{port}"}}}
                for name, port in ports.items()
            },
            "exporters": {
                f"file/{signal}-{way}": {"path": str(self._file(signal, way)), "flush_interval": "20ms"}
                for signal, way in self._read
            },
            "extensions": {"health_check": {"endpoint": f"127.0.0.1:{health}"}},
            "service": {
                "extensions": ["health_check"],
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {
                    f"{signal}/{way}": {
                        "receivers": [f"otlp/{way}", f"otlp/{_MARKS}"],
                        "exporters": [f"file/{signal}-{way}"],
                    }
                    for signal, way in self._read
                },
            },
        }

    def _file(self, signal: Signal, way: Way) -> Path:
        return self._directory / f"{signal}-{way}.jsonl"

    def port(self, protocol: Protocol) -> int:
        """Return the port on which it listens."""
        return self._ports[_way(protocol)]

    def endpoint(self, protocol: Protocol) -> str:
        """Return where it listens."""
        return f"http://127.0.0.1:{self.port(protocol)}"

    def received(self, signal: Signal, protocol: Protocol) -> Path:
        """Return a file of what it has accepted since the last call, of one signal by one way."""
        way = _way(protocol)
        lines = self._lines_before(self._set_mark(signal), signal, way)
        out = self._directory / f"{signal}-{way}-{next(self._numbers)}.jsonl"
        out.write_bytes(b"".join(line for line in lines if self._mark not in line))
        return out

    def received_metrics(self, protocol: Protocol) -> Metrics:
        """Return the metrics that it has accepted since the last call."""
        return read_metrics(self.received("metrics", protocol))

    def forget(self) -> None:
        """Leave out of what it returns next all that it has accepted until now."""
        for signal in {signal for signal, _ in self._read}:
            mark = self._set_mark(signal)
            for way in self._ports:
                self._lines_before(mark, signal, way)

    def _set_mark(self, signal: Signal) -> bytes:
        mark = f"{self._mark.decode()} {next(self._numbers)}."
        address = f"http://127.0.0.1:{self._marks_port}{_PATHS[signal]}"
        body = json.dumps(_marked(signal, mark)).encode()
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        with _DIRECT.open(request, timeout=DEADLINE_S):
            pass
        return mark.encode()

    def _lines_before(self, mark: bytes, signal: Signal, way: Way) -> list[bytes]:
        """Wait for a mark in a file, and return the lines before it that were not returned yet."""
        file = self._file(signal, way)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            with file.open("rb") as opened:
                opened.seek(self._read[signal, way])
                lines = opened.read().splitlines(keepends=True)
            at = next((n for n, line in enumerate(lines) if mark in line and line.endswith(b"\n")), None)
            if at is not None:
                self._read[signal, way] += sum(map(len, lines[: at + 1]))
                return lines[:at]
            assert time.monotonic() < deadline, f"{mark.decode()} is not in {file}: {self._log.read_text()}"
            time.sleep(0.01)


def _way(protocol: Protocol) -> Way:
    return "grpc" if protocol == "grpc" else "http"


def _marked(signal: Signal, mark: str) -> dict[str, Any]:
    """Return a request of one signal with a text in it."""
    now = str(time.time_ns())
    if signal == "metrics":
        metric = {"name": mark, "gauge": {"dataPoints": [{"asInt": "1", "timeUnixNano": now}]}}
        return {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    if signal == "traces":
        span = {"name": mark, "traceId": "1" * 32, "spanId": "1" * 16, "kind": 1, "startTimeUnixNano": now}
        return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    profile = {"profileId": "1" * 32, "timeUnixNano": now, "samples": [{"stackIndex": 0, "values": ["1"]}]}
    resource = {"attributes": [{"key": "mark", "value": {"stringValue": mark}}]}
    first: dict[str, Any] = {
        f"{name}Table": [{}] for name in ("mapping", "location", "function", "link", "attribute", "stack")
    }
    return {
        "resourceProfiles": [{"resource": resource, "scopeProfiles": [{"profiles": [profile]}]}],
        "dictionary": {**first, "stringTable": [""]},
    }
