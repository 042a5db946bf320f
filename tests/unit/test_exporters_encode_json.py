from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_gpu.exporters.wire.metrics_json import JsonMetricsEncoder
from otel_gpu.exporters.wire.metrics_protobuf import MetricsEncoder
from otel_gpu.exporters.wire.request_json import to_json
from otel_gpu.signals.exemplars import Exemplar, Exemplars
from otel_gpu.signals.metrics import Buckets, Instrument, Measurement, MetricSpec, Resource, SeriesStore, attributes

START, NOW = 1_000, 2_000
SPECS = [
    MetricSpec("calls", "{call}", Instrument.COUNTER, "Calls."),
    MetricSpec("busy", "s", Instrument.COUNTER, 'Busy "time".', floating=True),
    MetricSpec("usage", "", Instrument.UPDOWNCOUNTER, ""),
    MetricSpec("power", "W", Instrument.GAUGE, "Power.", floating=True),
    MetricSpec("fans", "{fan}", Instrument.GAUGE, "Fans."),
    MetricSpec("copies", "By", Instrument.HISTOGRAM, "Copies."),
    MetricSpec("waits", "s", Instrument.HISTOGRAM, "Waits.", floating=True),
]

values = st.one_of(st.text(st.characters(), max_size=5), st.integers(), st.booleans(), st.floats())
attribute_sets = st.dictionaries(st.text(st.characters(), max_size=3), values, max_size=3).map(attributes)
buckets = st.builds(
    Buckets,
    st.dictionaries(st.integers(-1, 60), st.integers(1, 2**40), max_size=5),
    st.integers(0, 2**80),
    st.integers(0, 3),
)


@st.composite
def exemplars(draw: st.DrawFn, spec: MetricSpec) -> Exemplars:
    numbers = st.floats() if spec.floating else st.integers(0, 2**70)
    made = st.builds(
        Exemplar,
        numbers,
        st.integers(1, 2**63),
        st.binary(min_size=16, max_size=16),
        st.binary(min_size=8, max_size=8),
    )
    return draw(st.dictionaries(st.one_of(st.none(), st.integers(-1, 60)), made, max_size=3))


@st.composite
def measurements(draw: st.DrawFn) -> Measurement:
    spec = draw(st.sampled_from(SPECS))
    if spec.instrument is Instrument.HISTOGRAM:
        value: Any = draw(buckets)
        value.exemplars = draw(exemplars(spec))
    else:
        value = draw(st.floats()) if spec.floating else draw(st.integers(-(2**70), 2**70))
    return Measurement(Resource(draw(attribute_sets)), spec, draw(attribute_sets), value)


def comparable(tree: Any) -> Any:
    """Drop what protobuf leaves out as it is the default, and make NaN equal to itself."""
    defaults = {"count": "0", "offset": 0, "key": ""}
    if isinstance(tree, dict):
        return {k: comparable(v) for k, v in tree.items() if v != {} and (k not in defaults or v != defaults[k])}
    if isinstance(tree, list):
        return [comparable(v) for v in tree]
    return "NaN" if isinstance(tree, float) and math.isnan(tree) else tree


def by_protobuf(store: SeriesStore, temporality: Any) -> Any:
    request = ExportMetricsServiceRequest()
    for payload in MetricsEncoder(temporality).encode(store, NOW):
        request.MergeFromString(payload.body)
    return json.loads(to_json(request))


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
@settings(max_examples=80, deadline=None)
@given(made=st.lists(measurements(), min_size=1, max_size=8))
def test_any_store_looks_as_protobufs_json_does(temporality: Any, made: list[Measurement]) -> None:
    store = SeriesStore()
    store.fold(made, START)

    (line,) = JsonMetricsEncoder(temporality).encode(store, NOW)

    assert line.body.endswith(b"]}\n")
    assert line.body.count(b"\n") == 1
    assert comparable(json.loads(line.body)) == comparable(by_protobuf(store, temporality))


@settings(max_examples=40, deadline=None)
@given(made=st.lists(measurements(), min_size=1, max_size=8))
def test_what_has_ended_looks_as_protobufs_json_does(made: list[Measurement]) -> None:
    store = SeriesStore()
    store.fold(made, START)
    json_encoder, encoder = JsonMetricsEncoder(marks_ended=True), MetricsEncoder(marks_ended=True)
    for one in (json_encoder, encoder):
        one.encode(store, NOW)

    ended = 0
    for now_ns in (NOW + 1, NOW + 100_000_000_000):
        for line, request in zip(json_encoder.encode([], now_ns), encoder.encode([], now_ns), strict=True):
            decoded = json.loads(to_json(ExportMetricsServiceRequest.FromString(request.body)))
            assert comparable(json.loads(line.body)) == comparable(decoded)
            assert line.body.count(b'"flags":1') == line.points == request.points
            ended += line.points
    assert ended == len(store)


def test_long_exports_are_several_lines_that_hold_every_point_once() -> None:
    store = SeriesStore()
    process = Resource(attributes({"service.name": "train"}))
    store.fold([Measurement(process, SPECS[0], attributes(k=f"k{i}"), i) for i in range(300)], START)

    lines = JsonMetricsEncoder(max_bytes=5_000).encode(store, NOW)

    assert len(lines) > 3
    assert all(len(line.body) < 5_100 for line in lines)
    found = [
        int(point["asInt"])
        for line in lines
        for of_resource in json.loads(line.body)["resourceMetrics"]
        for metric in of_resource["scopeMetrics"][0]["metrics"]
        for point in metric["sum"]["dataPoints"]
    ]
    assert sorted(found) == list(range(300))
    assert sum(line.points for line in lines) == 300
