"""How much of a core does a Collector take that hands metrics on? CPU time of a real one, by the points that went through it.

Run: python -m bench.gateway [--series N] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from bench import ground
from bench.export import COPIES, LAUNCHES, attribute_sets, resource
from otel_gpu.exporters.otlp.exporter import OtlpExporter
from otel_gpu.exporters.otlp.settings import OtlpSettings
from otel_gpu.signals.metrics import Buckets, Measurement, SeriesStore

_CONFIG = """
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{grpc}"}}}}}}}}
processors: {{memory_limiter: {{check_interval: 1s, limit_mib: 1000}}}}
exporters: {{otlp_grpc: {{endpoint: "127.0.0.1:{behind}", tls: {{insecure: true}}}}, debug: {{verbosity: basic}}}}
extensions: {{health_check: {{endpoint: "127.0.0.1:{health}"}}}}
service:
  extensions: [health_check]
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], processors: [memory_limiter], exporters: [{exporter}]}}}}
"""
_START_S = 60.0


class _Collector:
    def __init__(self, directory: Path, name: str, exporter: str, behind: int) -> None:
        self.port, health = _free(), _free()
        config = directory / f"{name}.yaml"
        config.write_text(_CONFIG.format(grpc=self.port, health=health, behind=behind, exporter=exporter))
        self._process = subprocess.Popen([ground.part("collector"), f"--config={config}"], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + _START_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{health}", timeout=1):
                    return
            except OSError as error:
                if time.monotonic() > deadline:
                    self.stop()
                    raise ground.UnavailableError(f"otelcol did not start: {error}") from error
            time.sleep(0.1)

    def cpu_s(self) -> float:
        return time.clock_gettime((~self._process.pid << 3) | 2)  # include/linux/posix-timers_types.h

    def rss_bytes(self) -> int:
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what one Collector took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=20_000, help="half of them histograms")
    parser.add_argument("--rounds", type=int, default=20)
    asked = parser.parse_args(arguments)
    store = SeriesStore()
    for attrs in attribute_sets(asked.series // 2):
        histogram = Buckets({n: 100 + n for n in range(5)}, 5_000)
        store.fold([Measurement(resource(), LAUNCHES, attrs, 7), Measurement(resource(), COPIES, attrs, histogram)], 1)
    try:
        with tempfile.TemporaryDirectory() as directory:
            end = _Collector(Path(directory), "end", "debug", 0)
            gateway = _Collector(Path(directory), "gateway", "otlp_grpc", end.port)
            exporter = OtlpExporter(OtlpSettings(endpoint=f"http://127.0.0.1:{gateway.port}"))
            before = gateway.cpu_s()
            for _ in range(asked.rounds):
                exporter.export_metrics(store, time.time_ns())
            exporter.shutdown(_START_S)
            sent = exporter.stats().sent_points
            time.sleep(1)  # what it took last is handed on
            took, held = gateway.cpu_s() - before, gateway.rss_bytes()
            gateway.stop()
            end.stop()
    except ground.UnavailableError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 1
    print(f"{sent:,} points: {took:.2f} s of CPU, {took / sent * 1e6:.1f} s a million, {held / 1e6:.0f} MB resident")
    return 0


if __name__ == "__main__":
    sys.exit(main())
