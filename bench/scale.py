"""What does a fleet cost its backends? Series and bytes of a process and of a node as the agent sends them, and how they add up.

Run: python -m bench.scale [--nodes N] [--gpus N] [--processes N] [--kernels N] [--json]
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from bench import ground
from bench.agent_process import AgentProcess
from otel_gpu.exporters.wire.explicit_bounds import explicit_bounds
from otel_gpu.processors.kernel_names.settings import KernelNamesSettings
from otel_gpu.service import telemetry
from otel_gpu.service.series_limits import SeriesLimits

_GZIP_LEVEL = 1
"""That of the agent's exporter."""
_KERNEL = "cuda.kernel.name"
_WORDS = [
    "elementwise",
    "vectorized",
    "unrolled",
    "reduce",
    "softmax",
    "gemm",
    "warpgroup",
    "cutlass",
    "sm90",
    "flash",
    "fwd",
    "bwd",
    "split",
    "copy",
    "index",
    "gather",
    "scatter",
    "layer",
    "norm",
    "gelu",
    "silu",
    "rope",
    "embedding",
    "cat",
    "fill",
    "adam",
    "foreach",
    "clip",
    "scale",
    "cast",
    "topk",
    "sort",
    "scan",
    "cumsum",
]
_KINDS = ("sum", "gauge", "exponentialHistogram")


@dataclass(frozen=True)
class Share:
    """What one resource sends in each interval."""

    what: str
    series: int
    histograms: int
    """Of the series."""
    size_bytes: int
    packed_bytes: int
    prometheus_series: int
    """Where histograms have explicit bounds, of which each is a series there, beside `_sum` and `_count`."""

    @property
    def per_series(self) -> str:
        return f"{self.size_bytes / self.series:.0f}"


@dataclass(frozen=True)
class Fleet:
    """All nodes together."""

    series: int
    points_per_s: float
    bytes_per_s: float
    packed_per_s: float
    prometheus_series: int


def _observed() -> Iterator[dict[str, Any]]:
    """Let an agent observe a program that does everything often done, and yield the resources of all intervals in their order."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        environment = {
            "LD_LIBRARY_PATH": str(ground.part("mock")),
            "MOCKCUDA_DEVICES": "1",
            "MOCKCUDA_STATE": str(directory),
        }
        command = [ground.part("programs") / "launch_storm", "--gate", "--phases=2", "--launches=500", "--memory=5"]
        command += ["--errors=1", "--graphs=2"]
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as program:
            assert program.stdin is not None
            assert program.stdout is not None
            program.stdout.readline()
            output = directory / "out"
            arguments = ("--output", f"file:{output}")
            with AgentProcess("", 0.5, [program.pid], environment, arguments) as agent:
                agent.wait_attached("libcuda")
                program.stdin.write("\n")
                program.stdin.flush()
                program.stdout.readline()
                _wait_for_lines(output / "metrics.jsonl", 5)
                agent.stop()
            program.kill()
        for line in (output / "metrics.jsonl").read_text().splitlines():
            yield from json.loads(line)["resourceMetrics"]


def _wait_for_lines(path: Path, count: int) -> None:
    """Wait for so many intervals: what the agent measures of itself comes one after it happened."""
    while not path.exists() or len(path.read_text().splitlines()) < count:
        time.sleep(0.1)


def _series(of_resource: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield each series with its metric's name and kind."""
    for scope in of_resource["scopeMetrics"]:
        for metric in scope["metrics"]:
            kind = next(kind for kind in _KINDS if kind in metric)
            for point in metric[kind]["dataPoints"]:
                yield metric["name"], kind, point


def _keys(things: Sequence[dict[str, Any]]) -> set[str]:
    return {thing["key"] for thing in things}


def _share(what: str, of_resource: dict[str, Any]) -> Share:
    request = ExportMetricsServiceRequest()
    json_format.ParseDict({"resourceMetrics": [of_resource]}, request, ignore_unknown_fields=True)
    body = request.SerializeToString()
    kinds = Counter(kind for _, kind, _ in _series(of_resource))
    packed = gzip.compress(body, _GZIP_LEVEL, mtime=0)
    bounds = sum(
        len(explicit_bounds(telemetry.ALL[name]).values) + 3
        for name, kind, _ in _series(of_resource)
        if kind == "exponentialHistogram"
    )
    others = kinds.total() - kinds["exponentialHistogram"]
    return Share(what, kinds.total(), kinds["exponentialHistogram"], len(body), len(packed), others + bounds)


def _with_kernels(of_resource: dict[str, Any], kernels: int) -> dict[str, Any]:
    """Return a resource in which each series by kernel is there for so many kernels, of names as PyTorch's are."""
    grown = json.loads(json.dumps(of_resource))
    for scope in grown["scopeMetrics"]:
        for metric in scope["metrics"]:
            data = metric[next(kind for kind in _KINDS if kind in metric)]
            first = next((p for p in data["dataPoints"] if _KERNEL in _keys(p.get("attributes", []))), None)
            if first is None:
                continue
            data["dataPoints"] = [_of_kernel(first, number) for number in range(kernels)]
    return dict(grown)


def _of_kernel(point: dict[str, Any], number: int) -> dict[str, Any]:
    # Names and counts that have little in common, so that they are packed no better than real ones.
    chance = random.Random(number)
    words = "_".join(chance.sample(_WORDS, 5))
    name = f"void at::native::{words}<{chance.randrange(16)}, {chance.getrandbits(64):x}, std::array<char*, 2ul>>"
    others = [one for one in point["attributes"] if one["key"] != _KERNEL]
    counted = {key: str(chance.randrange(1 << 30)) for key in ("asInt", "count") if key in point}
    if "sum" in point:
        counted["sum"] = float(chance.randrange(1 << 40))
    if "positive" in point:
        counts = [str(chance.randrange(1 << 20)) for _ in range(chance.randrange(1, 8))]
        counted["positive"] = {"offset": chance.randrange(10), "bucketCounts": counts}
    return {**point, **counted, "attributes": [*others, {"key": _KERNEL, "value": {"stringValue": name}}]}


def _named(of_resource: dict[str, Any]) -> str:
    return str(
        next(a["value"]["stringValue"] for a in of_resource["resource"]["attributes"] if a["key"] == "service.name")
    )


def measured(kernels: int) -> list[Share]:
    """Return what a process sends, with so many kernels and at the most, what the agent does of itself, and a GPU's hardware."""
    by_name = {_named(of_resource): of_resource for of_resource in _observed()}
    process = by_name["launch_storm"]
    top = KernelNamesSettings().top
    return [
        _share("process, one kernel", _with_kernels(process, 1)),
        _share(f"process, {kernels} kernels", _with_kernels(process, kernels)),
        _share(f"process, {top} kernels and `other`, the default's most", _with_kernels(process, top + 1)),
        _share("agent", by_name["otel-gpu"]),
        _share("hardware, one GPU", by_name["otel-gpu-hardware"]),
    ]


def fleet(shares: Sequence[Share], nodes: int, gpus: int, processes: int, interval_s: float) -> Fleet:
    """Add up `nodes` with so many GPUs and processes each, of which each has the usual number of kernels."""
    _, process, _, agent, hardware = shares

    def of_all(value: str) -> int:
        of_node = getattr(process, value) * processes + getattr(agent, value) + getattr(hardware, value) * gpus
        return int(of_node) * nodes

    return Fleet(
        of_all("series"),
        of_all("series") / interval_s,
        of_all("size_bytes") / interval_s,
        of_all("packed_bytes") / interval_s,
        of_all("prometheus_series"),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--gpus", type=int, default=8, help="of each node")
    parser.add_argument("--processes", type=int, default=8, help="on each node")
    parser.add_argument("--kernels", type=int, default=30, help="of each process")
    parser.add_argument("--interval", type=float, default=10.0, help="seconds")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    try:
        shares = measured(asked.kernels)
    except ground.UnavailableError as error:
        print(f"scale: {error}", file=sys.stderr)
        return 1
    whole = fleet(shares, asked.nodes, asked.gpus, asked.processes, asked.interval)
    limits = SeriesLimits()
    if asked.json:
        print(
            json.dumps(
                {"shares": [asdict(share) for share in shares], "fleet": asdict(whole), "limits": asdict(limits)}
            )
        )
        return 0
    print(
        "| in each interval | series | of these histograms | bytes | gzip | bytes a series |\n|---|--:|--:|--:|--:|--:|"
    )
    for s in shares:
        print(f"| {s.what} | {s.series} | {s.histograms} | {s.size_bytes:,} | {s.packed_bytes:,} | {s.per_series} |")
    print(
        f"\n{asked.nodes:,} nodes of {asked.gpus} GPUs and {asked.processes} processes with {asked.kernels} kernels, every "
        f"{asked.interval:g} s:\n{whole.series:,} series ({whole.prometheus_series:,} in Prometheus with explicit bounds), "
        f"{whole.points_per_s:,.0f} points/s, {whole.bytes_per_s / 1e6:,.0f} MB/s, {whole.packed_per_s / 1e6:,.0f} MB/s by gzip.\n"
        f"Limits: {limits.per_resource:,} series a process, {limits.per_metric:,} of one metric, {limits.total:,} an agent."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
