"""What anybody may send to the view: OTLP of every signal, as protobuf and as JSON, packed or not."""

from __future__ import annotations

import gzip
from dataclasses import replace

from google.protobuf import json_format

from otel_gpu.exporters.wire.profiles_protobuf import encode_profiles
from otel_gpu.signals import SIGNALS
from otel_gpu.view import flame_graphs, metric_tables, traces_panel
from otel_gpu.view.bodies import RefusedError, unpacked
from otel_gpu.view.gpu_panel import Query, gpu_panel
from otel_gpu.view.intake import FORMS, Intake
from otel_gpu.view.settings import Bounds, ViewSettings
from otel_gpu.view.store import Store
from tests.unit.profile_examples import hostile, training
from tests.unit.view_requests import NS, Metrics, Spans

from .target import Target

_NOW = 1_700_000_000 * NS
_BOUNDS = replace(
    Bounds(), body_bytes=1 << 16, json_bytes=1 << 16, series=50, spans=20, samples=500, stacks=50, resources=10
)
_ENCODINGS = ("", "gzip", "zstd", "br")


def _view(data: bytes) -> None:
    """Whatever is sent, it is refused or kept within bounds, and every question has an answer."""
    store = Store(ViewSettings(bounds=_BOUNDS), lambda: _NOW)
    intake = Intake(store, _BOUNDS)
    # Twice: what is there already is another path.
    refused: list[RefusedError] = []
    for part in (*data.split(b"\xff\xfe\xfd"), data):
        if not part:
            continue
        try:
            body = unpacked(part[1:], _ENCODINGS[part[0] >> 3 & 3], _BOUNDS.body_bytes)
            intake.take(SIGNALS[part[0] % 3], body, is_json=bool(part[0] & 32))
        except RefusedError as error:
            refused.append(error)
    assert all(400 <= error.status <= 503 and len(str(error)) < 300 for error in refused)
    store.sweep()
    query = Query(None, 180, _NOW)
    gpu_panel(store.series, query)
    metric_tables.fabric(store.series, query)
    metric_tables.agents(store.series, query)
    for row in traces_panel.requests(store.spans, store.resources, None, "", "duration", 0)["rows"]:
        traces_panel.trace(store.spans, store.resources, row["trace"])
    for kind in flame_graphs.kinds(store.profiles, store.resources, None):
        flame_graphs.page(store.profiles, store.resources, kind["type"], kind["process"], [(0, _NOW), (0, 2 * _NOW)])
    assert len(store.series) <= _BOUNDS.series
    assert len(store.spans) <= _BOUNDS.spans
    assert len(store.profiles) <= _BOUNDS.samples
    assert len(list(store.resources)) <= _BOUNDS.resources


def _sent() -> list[bytes]:
    """Return requests as they are sent, before each the byte that says how."""
    metrics = Metrics().counter("gpu.cuda.kernel.launch.calls", 5, _NOW - NS, _NOW, cuda__kernel__name="gemm")
    metrics.exponential("gpu.cuda.kernel.grid.size", {3: 5}, 60, _NOW - NS, _NOW, cuda__kernel__name="gemm", scale=2)
    metrics.explicit("http.server.request.duration", [0.1, 1], [1, 2, 3], 9, _NOW - NS, _NOW)
    metrics.level("gpu.cuda.memory.usage", 1 << 20, _NOW)
    spans = Spans().add(1, 1, "GET /", _NOW - NS, NS).add(1, 2, "gpu batch", _NOW - NS, 5, parent=1, links=((2, 3),))
    profiles = [replace(p, start_ns=_NOW - NS) for p in (training(), hostile())]
    requests = {"metrics": metrics.request, "traces": spans.request, "profiles": encode_profiles(profiles)}
    sent = []
    for number, signal in enumerate(SIGNALS):
        body = requests[signal].SerializeToString()
        assert FORMS[signal].request.FromString(body) == requests[signal]
        text = json_format.MessageToJson(requests[signal], indent=None).encode()
        sent += [_how(number) + body, _how(number, 1) + gzip.compress(body, mtime=0), _how(number, 4) + text]
    return sent


def _how(signal: int, packed: int = 0) -> bytes:
    """Return the byte that says of which signal a body is (by 3), how it is packed, and 4 for JSON."""
    return bytes([next(n for n in range(packed << 3, 64) if n % 3 == signal and n >> 3 == packed)])


TARGETS = (Target("view", _view, _sent, max_bytes=1 << 14),)
