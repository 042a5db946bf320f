"""What does `otel-gpu view` hold, in how much memory, and how fast does it answer? 10,000 series and 100,000 spans.

python -m bench.view prints the memory and, for each question of the page, what an answer costs and how long the slowest of many
took: alone, and while all 10,000 series come in again and again.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SERIES, SPANS, PROCESSES, EXPORTS = 10_000, 100_000, 50, 20
RSS_MB, ANSWER_MS = 150, 200
_NS = 1_000_000_000
_ASKED = ("api/state", "api/gpu?seconds=180", "api/gpu?seconds=3600", "api/fabric", "api/health", "api/requests", "api/profiles",
          "api/requests?order=duration&text=chat", f"api/traces/{5:032x}")  # fmt: skip


def _resource(message: Any, number: int) -> None:
    for key, value in (("service.name", f"server-{number}"), ("host.name", "bench")):
        message.attributes.add(key=key).value.string_value = value
    message.attributes.add(key="process.pid").value.int_value = 1000 + number


def _metrics(at_ns: int, export: int) -> Iterator[bytes]:
    """Yield one export of all series, as an agent would send it: a request for each ten processes."""
    for first in range(0, PROCESSES, 10):
        request = ExportMetricsServiceRequest()
        for process in range(first, first + 10):
            of_resource = request.resource_metrics.add()
            _resource(of_resource.resource, process)
            metrics = of_resource.scope_metrics.add().metrics
            launches = metrics.add(name="gpu.cuda.kernel.launch.calls", unit="{call}")
            launches.sum.is_monotonic, launches.sum.aggregation_temporality = True, 2
            grids = metrics.add(name="gpu.cuda.kernel.grid.size", unit="1")
            grids.exponential_histogram.aggregation_temporality = 2
            memory = metrics.add(name="gpu.cuda.memory.usage", unit="By")
            memory.sum.aggregation_temporality = 2
            each = SERIES // PROCESSES
            for i in range(each):
                times = {"start_time_unix_nano": at_ns - (export + 1) * 10 * _NS, "time_unix_nano": at_ns}
                if i < each // 2:
                    point = launches.sum.data_points.add(as_int=1000 * (export + 1), **times)
                elif i < each * 9 // 10:
                    point = grids.exponential_histogram.data_points.add(
                        scale=0, count=100 * (export + 1), sum=6400 * (export + 1), **times
                    )
                    point.positive.offset = 3
                    point.positive.bucket_counts.extend([20 * (export + 1)] * 5)
                else:
                    point = memory.sum.data_points.add(as_int=1 << 20, **times)
                point.attributes.add(
                    key="cuda.kernel.name"
                ).value.string_value = f"void gemm_kernel_{i}<float, {i % 64}>"
                point.attributes.add(key="cuda.device.index").value.int_value = i % 8
        yield request.SerializeToString()


def _spans(now_ns: int) -> Iterator[bytes]:
    """Yield requests with their GPU work, four children each, as traces requests of 1000 spans."""
    for first in range(0, SPANS, 1000):
        request = ExportTraceServiceRequest()
        of_resource = request.resource_spans.add()
        _resource(of_resource.resource, first // 1000 % PROCESSES)
        spans = of_resource.scope_spans.add().spans
        for i in range(first, first + 1000):
            trace, place = divmod(i, 5)
            start = now_ns - (SPANS - i) * 10_000_000
            span = spans.add(
                trace_id=(trace or 5).to_bytes(16, "big"),
                span_id=(i + 1).to_bytes(8, "big"),
                parent_span_id=(i - place + 1).to_bytes(8, "big") if place else b"",
                name="gpu batch" if place else "POST /v1/chat/completions",
                kind=1 if place else 2,
                start_time_unix_nano=start,
                end_time_unix_nano=start + 5_000_000,
            )
            for name in (
                "gpu.cuda.kernel.launch.calls",
                "gpu.cuda.memory.copy.calls.h2d",
                "gpu.cuda.memory.copy.bytes.h2d",
            ):
                span.attributes.add(key=name).value.int_value = i
            span.attributes.add(key="otel_gpu.attribution").value.string_value = "exact"
            if not place:
                span.attributes.add(key="url.template").value.string_value = "/v1/chat/completions"
                span.attributes.add(key="http.response.status_code").value.int_value = 200
        yield request.SerializeToString()


def _send(url: str, signal: str, body: bytes) -> None:
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
    request = urllib.request.Request(f"{url}v1/{signal}", gzip.compress(body, 1), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert not answer.read(), "not everything was kept"


def _ask(url: str, path: str, times: int) -> float:
    """Return how long the slowest answer took, in seconds."""
    slowest = 0.0
    for _ in range(times):
        began = time.perf_counter()
        with urllib.request.urlopen(url + path, timeout=60) as answer:
            answer.read()
        slowest = max(slowest, time.perf_counter() - began)
    return slowest


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _cost(pid: int, url: str, path: str) -> float:
    """Return what an answer costs the view's process, in seconds of a CPU: as long as it takes where nothing else runs."""
    before = _cpu_s(pid)
    _ask(url, path, 20)
    return (_cpu_s(pid) - before) / 20


def _rss_mb(pid: int, what: str = "VmRSS") -> float:
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(rf"{what}:\s+(\d+)", status.read())[1]) / 1000  # type: ignore[index]


def main() -> int:
    """Measure, print, and say by the exit status whether it is as it must be."""
    command = [sys.executable, "-m", "otel_gpu", "view", "--port", "0", "--grpc-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as view:
        assert view.stdout is not None
        url = view.stdout.readline().split()[-1]
        view.stdout.readline()
        print(f"empty: {_rss_mb(view.pid):.0f} MB")
        now_ns = time.time_ns()
        for export in range(EXPORTS):
            for body in _metrics(now_ns - (EXPORTS - export) * 10 * _NS, export):
                _send(url, "metrics", body)
        print(f"{SERIES:,} series: {_rss_mb(view.pid):.0f} MB")
        for body in _spans(now_ns):
            _send(url, "traces", body)
        print(f"and {SPANS:,} spans: {_rss_mb(view.pid):.0f} MB")
        costs = {path: _cost(view.pid, url, path) for path in _ASKED}
        alone = {path: _ask(url, path, 20) for path in _ASKED}
        done = threading.Event()

        def keep_sending() -> None:
            export = EXPORTS
            while not done.is_set():
                for body in _metrics(time.time_ns(), export):
                    _send(url, "metrics", body)
                export += 1
                done.wait(1)

        sender = threading.Thread(target=keep_sending)
        sender.start()
        beside = {path: _ask(url, path, 20) for path in _ASKED}
        done.set()
        sender.join()
        rss = _rss_mb(view.pid)
        for path in _ASKED:
            cost, slowest, loaded = (took[path] * 1000 for took in (costs, alone, beside))
            print(f"{path:<45} {cost:7.1f} ms CPU, slowest {slowest:7.1f} ms, beside exports {loaded:7.1f} ms")
        print(f"memory (RSS): {rss:.0f} MB, at most {_rss_mb(view.pid, 'VmHWM'):.0f} MB; must be {RSS_MB}")
        print(
            f"slowest answer: {max(alone.values()) * 1000:.0f} ms, beside exports {max(beside.values()) * 1000:.0f} ms"
        )
        costliest = max(costs.values()) * 1000
        print(f"costliest answer: {costliest:.0f} ms CPU; must be {ANSWER_MS} ms")
        view.terminate()
        view.wait(10)
    return int(rss > RSS_MB or costliest > ANSWER_MS)


if __name__ == "__main__":
    os._exit(main())
