"""What do files of OTLP/JSON say of collectives? Spans of arrivals, and how far each rank of a communicator is.

The files are the agent's (`--output file:DIR`), or of any Collector that the agents of several hosts send to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import OtelGpuError
from ...text import escaped
from .finding import Arrival, Data, Member, Signature
from .links import Latency, Link

_ARRIVAL, _SEQUENCE = "nccl collective", "nccl.comm.sequence"
_LATENCY = "rdma.client.operation.duration"
_DELTA = 1
"""AggregationTemporality"""
_NO_RECORDED_VALUE = 1
"""DataPointFlags"""
_FILES = ("traces.jsonl", "metrics.jsonl")
_UNKNOWN = "unknown"
_Attributes = Mapping[str, Any]
_Series = dict[tuple[Link, str, str, str], Latency]
"""By link, process, queue pair and when the series began."""


def read(paths: Iterable[Path]) -> Data:
    """Read files, and directories with a traces.jsonl or a metrics.jsonl; OtelGpuError for what is not OTLP/JSON."""
    data = Data()
    series: _Series = {}
    for path in paths:
        files = [path / name for name in _FILES if (path / name).exists()] if path.is_dir() else [path]
        if not files:
            raise OtelGpuError(f"{path}: there is neither a traces.jsonl nor a metrics.jsonl; give what an agent wrote")
        for file in files:
            _read_file(file, data, series)
    for (link, *_), latency in series.items():
        total = data.latencies.setdefault(link, Latency())
        total.requests += latency.requests
        total.total_s += latency.total_s
    return data


def _read_file(path: Path, data: Data, series: _Series) -> None:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            if not line.endswith(b"\n"):
                break  # somebody is still writing it
            try:
                _read_request(json.loads(line), data, series)
            except (ValueError, KeyError, TypeError, AttributeError) as e:
                raise OtelGpuError(
                    f"{escaped(str(path))}: line {number} is no OTLP/JSON request: {escaped(f'{type(e).__name__}: {e}')[:200]}; give "
                    "files of the agent's, or of the Collector's file exporter"
                ) from e


def _read_request(request: Mapping[str, Any], data: Data, series: _Series) -> None:
    for of_resource in request.get("resourceSpans", ()):
        resource = _attributes(of_resource.get("resource", {}))
        for span in _of_scopes(of_resource, "scopeSpans", "spans"):
            if span["name"] == _ARRIVAL:
                _take_span(span, resource, data)
    for of_resource in request.get("resourceMetrics", ()):
        resource = _attributes(of_resource.get("resource", {}))
        for metric in _of_scopes(of_resource, "scopeMetrics", "metrics"):
            if metric["name"] == _SEQUENCE:
                for point in _points(metric["gauge"]):
                    _take_sequence(point, resource, data)
            elif metric["name"] == _LATENCY:
                histogram = metric["exponentialHistogram"]
                for point in _points(histogram):
                    is_delta = histogram.get("aggregationTemporality") == _DELTA
                    _take_latency(point, resource, series, is_delta=is_delta)


def _points(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield those that have a value: the others end a series, and what it last had is what counts."""
    return (point for point in data["dataPoints"] if not point.get("flags", 0) & _NO_RECORDED_VALUE)


def _of_scopes(of_resource: Mapping[str, Any], scopes: str, kind: str) -> Iterator[Mapping[str, Any]]:
    for scope in of_resource.get(scopes, ()):
        yield from scope.get(kind, ())


def _take_span(span: Mapping[str, Any], resource: _Attributes, data: Data) -> None:
    said = _attributes(span)
    if _UNKNOWN in (said["nccl.comm.hash"], said["nccl.rank"], said["nccl.nranks"]):
        return
    host, ended_ns = _host(resource), int(span["endTimeUnixNano"])
    data.arrivals.append(
        Arrival(
            str(said["nccl.comm.hash"]),
            int(said["nccl.rank"]),
            int(said["nccl.nranks"]),
            int(said["nccl.sequence"]),
            int(span["startTimeUnixNano"]),
            ended_ns,
            bool(said.get("nccl.in_flight")),
            host,
            int(resource.get("process.pid", 0)),
            Signature(
                str(said["nccl.collective"]),
                said.get("nccl.count"),
                str(said.get("nccl.datatype", _UNKNOWN)),
                said.get("nccl.reduction"),
                said.get("nccl.root"),
            ),
        )
    )
    data.until_ns[host] = max(data.until_ns.get(host, 0), ended_ns)


def _take_sequence(point: Mapping[str, Any], resource: _Attributes, data: Data) -> None:
    said, host = _attributes(point), _host(resource)
    data.until_ns[host] = max(data.until_ns.get(host, 0), int(point["timeUnixNano"]))
    if _UNKNOWN in (said.get("nccl.comm.hash"), said.get("nccl.rank"), said.get("nccl.nranks")):
        return
    if "nccl.comm.hash" not in said:
        return  # what had no series of its own
    key = str(said["nccl.comm.hash"]), int(said["nccl.rank"])
    sequence = int(point.get("asInt", 0))
    known = data.members.get(key)
    if known is None or known.sequence <= sequence:
        pid = int(resource.get("process.pid", 0))
        data.members[key] = Member(host, pid, int(said["nccl.nranks"]), sequence)


def _take_latency(point: Mapping[str, Any], resource: _Attributes, series: _Series, *, is_delta: bool) -> None:
    said = _attributes(point)
    if "nccl.comm.hash" not in said:
        return
    peer = said.get("network.peer.address") or said.get("rdma.remote.gid") or ""
    link = Link(
        str(said["nccl.comm.hash"]),
        str(said["rdma.operation"]),
        _host(resource),
        str(said.get("rdma.device", "")),
        int(said.get("rdma.port", 0)),
        str(peer),
    )
    # Of a cumulative series the last point has all; one that began anew is another.
    began = "" if is_delta else str(point.get("startTimeUnixNano", ""))
    which = link, str(resource.get("process.pid")), str(said.get("rdma.local.qpn")), began
    known = series.setdefault(which, Latency())
    requests, total_s = int(point.get("count", 0)), float(point.get("sum", 0.0))
    known.requests = known.requests + requests if is_delta else requests
    known.total_s = known.total_s + total_s if is_delta else total_s


def _host(resource: _Attributes) -> str:
    return str(resource.get("host.id") or resource.get("host.name") or "")


def _attributes(of: Mapping[str, Any]) -> dict[str, Any]:
    return {a["key"]: _value(a["value"]) for a in of.get("attributes", ())}


def _value(value: Mapping[str, Any]) -> Any:
    if "intValue" in value:
        return int(value["intValue"])
    return next(iter(value.values()), None)
