"""No count is guessed: what a bucket of explicit bounds holds is what lies between its bounds."""

from __future__ import annotations

import bisect
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.exporters.wire.explicit_bounds import explicit_bounds
from otel_gpu.exporters.wire.metrics_json import JsonMetricsEncoder
from otel_gpu.exporters.wire.metrics_protobuf import MetricsEncoder
from otel_gpu.exporters.wire.request_json import json_payload
from otel_gpu.signals.metrics import (
    Buckets,
    Instrument,
    Measurement,
    MetricSpec,
    Resource,
    SeriesStore,
    attributes,
    bucket_index,
)

SPECS = {unit: MetricSpec(f"in {unit}", unit, Instrument.HISTOGRAM, "Sizes.") for unit in ("By", "1", "s", "{block}")}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@given(values=st.lists(st.integers(0, 2**70), max_size=20))
def test_every_value_is_in_the_bucket_that_it_lies_in(spec: MetricSpec, values: list[int]) -> None:
    histogram = Buckets()
    for value in values:
        histogram.add(Buckets({bucket_index(value): 1}, value) if value else Buckets(zero_count=1))
    bounds = explicit_bounds(spec)

    expected = [0] * (len(bounds.values) + 1)
    for value in values:
        expected[bisect.bisect_left(bounds.values, value)] += 1  # a bound belongs to the bucket below it
    assert bounds.counts(histogram) == expected


def test_less_than_one_is_told_apart_in_seconds() -> None:
    bounds = explicit_bounds(SPECS["s"])

    # 2**-11 s < 0.6 ms < 2**-10 s, and what is below a microsecond
    assert bounds.counts(Buckets({-11: 3, -40: 2})) == [2, *[0] * 9, 3, *[0] * (len(bounds.values) - 10)]
    assert bounds.values[10] == 2**-10


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_both_encodings_say_the_same_again_and_again(temporality) -> None:
    store = SeriesStore()
    process = Resource(attributes({"service.name": "train"}))
    protobuf = MetricsEncoder(temporality, histograms="explicit")
    text = JsonMetricsEncoder(temporality, histograms="explicit")
    last: dict[str, list[object]] = {}
    for now_ns, more in enumerate((Buckets({3: 2}, 30), Buckets({3: 1, 40: 1}, 2**41), Buckets()), 10):
        store.fold([Measurement(process, SPECS["By"], (), more)], 1)
        [body] = protobuf.encode(store, now_ns)
        [line] = text.encode(store, now_ns)
        protobuf.commit()
        text.commit()
        points = []
        for one in (json_payload("metrics", body), line):
            [metric] = json.loads(one.body)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
            points.append(metric["histogram"]["dataPoints"][0])
        assert points[0].pop("count", "0") == points[1].pop("count")
        assert points[0] == points[1]
        last = points[1]

    assert last["sum"] == (2**41 + 30 if temporality == "cumulative" else 0)
    assert last["bucketCounts"][0] == ("3" if temporality == "cumulative" else "0")
    assert len(last["explicitBounds"]) + 1 == len(last["bucketCounts"])
