from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from otel_gpu.exporters.settings import Histograms, Temporality
from otel_gpu.exporters.wire import series_requests
from otel_gpu.exporters.wire.metrics_protobuf import MetricsEncoder
from otel_gpu.signals.exemplars import Exemplar
from otel_gpu.signals.metrics import (
    AttributeValue,
    Buckets,
    Instrument,
    Measurement,
    MetricSpec,
    Resource,
    SeriesStore,
    Value,
    attributes,
)

CALLS = MetricSpec("calls", "{call}", Instrument.COUNTER, "Calls.")
BUSY = MetricSpec("busy", "s", Instrument.COUNTER, "Busy time.", floating=True)
USAGE = MetricSpec("usage", "By", Instrument.UPDOWNCOUNTER, "In use.")
POWER = MetricSpec("power", "W", Instrument.GAUGE, "Power.", floating=True)
COPIES = MetricSpec("copies", "By", Instrument.HISTOGRAM, "Copies.")
SPECS = [CALLS, BUSY, USAGE, POWER, COPIES]

PROCESS = Resource(attributes({"service.name": "train", "process.pid": 7}))
OTHER = Resource(attributes({"service.name": "serve", "process.pid": 8}))
START, NOW, LATER = 1_000, 2_000, 3_000


def measurement(spec: MetricSpec, value: Value, resource: Resource = PROCESS, **attrs: AttributeValue) -> Measurement:
    return Measurement(resource, spec, attributes(attrs), value)


def store_of(*measurements: Measurement) -> SeriesStore:
    store = SeriesStore()
    store.fold(measurements, START)
    return store


def decode(encoder: MetricsEncoder, store: SeriesStore, now_ns: int = NOW) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    for payload in encoder.encode(store, now_ns):
        request.MergeFromString(payload.body)
    return request


def plain(value: AnyValue) -> AttributeValue:
    kind = value.WhichOneof("value")
    assert kind is not None
    result: AttributeValue = getattr(value, kind)
    return result


def points(
    request: ExportMetricsServiceRequest,
) -> dict[tuple[str, str, tuple[tuple[str, AttributeValue], ...]], object]:
    """Everything in a request by (service, metric, attributes); fails on duplicates."""
    found = {}
    for of_resource in request.resource_metrics:
        service = next(a.value.string_value for a in of_resource.resource.attributes if a.key == "service.name")
        for scope in of_resource.scope_metrics:
            for metric in scope.metrics:
                for point in getattr(metric, str(metric.WhichOneof("data"))).data_points:
                    key = (service, metric.name, tuple((a.key, plain(a.value)) for a in point.attributes))
                    assert key not in found
                    found[key] = point
    return found


def only_point(request: ExportMetricsServiceRequest):
    (point,) = points(request).values()
    return point


def test_resource_and_scope_say_whose_data_it_is_and_by_what_conventions() -> None:
    request = decode(MetricsEncoder(scope_version="1.2"), store_of(measurement(CALLS, 1)))

    (of_resource,) = request.resource_metrics
    (scope,) = of_resource.scope_metrics
    assert {a.key: plain(a.value) for a in of_resource.resource.attributes} == dict(PROCESS.attributes)
    assert (scope.scope.name, scope.scope.version) == ("otel_gpu", "1.2")
    assert of_resource.schema_url == scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"


def test_counter_is_a_monotonic_cumulative_sum_of_integers() -> None:
    (metric,) = (
        decode(MetricsEncoder(), store_of(measurement(CALLS, 5, k="a"))).resource_metrics[0].scope_metrics[0].metrics
    )

    (point,) = metric.sum.data_points
    assert (metric.name, metric.unit, metric.description) == ("calls", "{call}", "Calls.")
    assert (metric.sum.is_monotonic, metric.sum.aggregation_temporality) == (True, 2)
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (5, START, NOW)


def test_floating_counter_is_a_sum_of_doubles() -> None:
    assert only_point(decode(MetricsEncoder(), store_of(measurement(BUSY, 0.5)))).as_double == 0.5


def test_updowncounter_is_a_sum_that_may_fall() -> None:
    store = store_of(measurement(USAGE, 10), measurement(USAGE, -4))

    (metric,) = decode(MetricsEncoder("delta"), store).resource_metrics[0].scope_metrics[0].metrics

    assert (metric.sum.is_monotonic, metric.sum.aggregation_temporality) == (False, 2)
    assert metric.sum.data_points[0].as_int == 6


def test_gauge_has_no_start_time() -> None:
    point = only_point(decode(MetricsEncoder(), store_of(measurement(POWER, 250))))

    assert (point.as_double, point.start_time_unix_nano) == (250.0, 0)


def test_histogram_buckets_are_dense_from_the_first_index() -> None:
    buckets = Buckets({-1: 2, 3: 1}, total=18, zero_count=4)

    point = only_point(decode(MetricsEncoder(), store_of(measurement(COPIES, buckets))))

    assert (point.scale, point.positive.offset, list(point.positive.bucket_counts)) == (0, -1, [2, 0, 0, 0, 1])
    assert (point.count, point.sum, point.zero_count) == (7, 18.0, 4)
    assert not point.HasField("min")


def test_histogram_of_zeros_has_no_buckets() -> None:
    point = only_point(decode(MetricsEncoder(), store_of(measurement(COPIES, Buckets(zero_count=3)))))

    assert (point.count, point.zero_count, list(point.positive.bucket_counts)) == (3, 3, [])


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_exemplars_are_those_of_one_export(temporality: Temporality) -> None:
    first, second = (Exemplar(value, NOW, b"t" * 16, bytes([value]) * 8) for value in (5, 7))
    store, encoder = SeriesStore(), MetricsEncoder(temporality)
    seen = []

    for added in (first, second, None):
        buckets = Buckets({2: 1}, 5)
        if added is not None:
            buckets.note(2, added)
        store.fold([measurement(COPIES, buckets)], START)
        seen.append([(e.as_int, e.trace_id, e.span_id) for e in only_point(decode(encoder, store)).exemplars])
        encoder.commit()
        store.sweep()

    assert seen == [[(5, b"t" * 16, b"\x05" * 8)], [(7, b"t" * 16, b"\x07" * 8)], []]


def test_second_export_shows_new_values_and_times() -> None:
    store = store_of(measurement(CALLS, 1), measurement(COPIES, Buckets({2: 1}, 5)))
    encoder = MetricsEncoder()
    decode(encoder, store)

    store.fold([measurement(CALLS, 2), measurement(COPIES, Buckets({0: 3}, 6))], LATER)
    calls, copies = points(decode(encoder, store, LATER)).values()

    assert (calls.as_int, calls.start_time_unix_nano, calls.time_unix_nano) == (3, START, LATER)
    assert (copies.positive.offset, list(copies.positive.bucket_counts), copies.sum) == (0, [3, 0, 1], 11.0)


def test_series_and_resources_that_are_gone_leave_the_request() -> None:
    store = store_of(measurement(CALLS, 1, k="a"), measurement(CALLS, 2, k="b"), measurement(CALLS, 3, OTHER))
    encoder = MetricsEncoder()
    decode(encoder, store)

    store.end(OTHER)
    store.sweep()
    next(iter(store)).series.pop(("calls", attributes(k="a")))

    assert list(points(decode(encoder, store))) == [("train", "calls", (("k", "b"),))]


@pytest.mark.parametrize("histograms", ["exponential", "explicit"])
def test_series_that_have_ended_come_once_more_without_a_value(histograms: Histograms) -> None:
    made = (measurement(CALLS, 1), measurement(POWER, 2), measurement(COPIES, Buckets({3: 1}, 9)))
    store = store_of(*made, measurement(CALLS, 3, OTHER, k="a"), measurement(CALLS, 4, OTHER, k="b"))
    encoder = MetricsEncoder(histograms=histograms, marks_ended=True, max_bytes=150)
    between_ns, now_ns = NOW + 10_000_000, NOW + 91_000_000_000
    ended_ns = between_ns + 1_000_000
    assert not any(one.flags for one in points(decode(encoder, store)).values())

    store.end(PROCESS)
    store.sweep()
    next(one for one in store if one.resource == OTHER).series.pop(("calls", attributes(k="a")))
    # A level ends at once. What only rises stays until Prometheus has asked the Collector for it.
    first = points(decode(encoder, store, between_ns))
    assert [(key, one.time_unix_nano) for key, one in first.items() if one.flags] == [
        (("train", "power", ()), NOW + 1_000_000)
    ]
    found = points(decode(encoder, store, now_ns))

    *ended, (alive, point) = found.items()
    assert (alive, point.flags, point.as_int, point.time_unix_nano) == (
        ("serve", "calls", (("k", "b"),)), 0, 4, now_ns,
    )  # fmt: skip
    assert {key for key, _ in ended} == {
        ("train", "calls", ()), ("train", "copies", ()), ("serve", "calls", (("k", "a"),)),
    }  # fmt: skip
    for (_, name, _), one in ended:
        assert (one.flags, one.time_unix_nano) == (1, ended_ns)
        assert (
            (one.count, list(getattr(one, "explicit_bounds", ()))) == (0, [])
            if name == "copies"
            else not one.HasField("as_int")
        )
    assert list(points(decode(encoder, store, now_ns + 1))) == [alive]


def test_a_series_that_is_back_before_its_end_is_marked_has_none() -> None:
    store, without = store_of(measurement(CALLS, 1)), store_of(measurement(CALLS, 1, OTHER))
    encoder = MetricsEncoder(marks_ended=True)
    for held, now_ns in ((store, NOW), (without, NOW + 1), (store, NOW + 2)):
        decode(encoder, held, now_ns)

    found = points(decode(encoder, store, NOW + 100_000_000_000))
    assert [key for key, one in found.items() if one.flags] == [("serve", "calls", ())]


def test_ends_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_requests, "_MAX_WAITING", 3)
    encoder = MetricsEncoder(marks_ended=True)
    decode(encoder, store_of(*(measurement(CALLS, 1, k=str(k)) for k in range(4))))

    found = points(decode(encoder, store_of(measurement(CALLS, 1, OTHER)), NOW + 1))

    assert sum(one.flags for one in found.values()) == 4


def test_series_that_begin_anew_or_are_deltas_have_no_end() -> None:
    store = store_of(measurement(CALLS, 1), measurement(USAGE, 2), measurement(POWER, 2))
    restarted, deltas = MetricsEncoder(marks_ended=True), MetricsEncoder("delta", marks_ended=True)
    for encoder in (restarted, deltas):
        decode(encoder, store)
    store.restart(START + 1)
    assert not any(one.flags for one in points(decode(restarted, store, LATER)).values())

    store.end(PROCESS)
    store.sweep()

    found = points(decode(deltas, store, LATER))
    assert {name: one.flags for (_, name, _), one in found.items()} == {"usage": 1, "power": 1}


def test_what_has_ended_holds_nothing() -> None:
    store = store_of(measurement(USAGE, 2), measurement(CALLS, 3), measurement(POWER, 4), measurement(USAGE, 5, OTHER))

    store.end(PROCESS)

    values = [{s.metric.name: s.value for s in owner.series.values()} for owner in store]
    assert values == [{"usage": 0, "calls": 3, "power": 4}, {"usage": 5}]


def test_every_kind_of_attribute_survives() -> None:
    values = {"big": 2**70, "bool": True, "float": 0.5, "int": -3, "str": "x\udc80y"}

    point = only_point(decode(MetricsEncoder(), store_of(measurement(CALLS, 1, **values))))

    assert {a.key: plain(a.value) for a in point.attributes} == {**values, "big": str(2**70), "str": "x?y"}


def test_integer_beyond_64_bits_is_sent_rounded() -> None:
    assert only_point(decode(MetricsEncoder(), store_of(measurement(CALLS, 2**70)))).as_double == 2.0**70


def test_empty_store_makes_no_request() -> None:
    assert MetricsEncoder().encode(SeriesStore(), NOW) == []


def test_delta_is_what_was_added_since_the_last_committed_export() -> None:
    store = store_of(measurement(CALLS, 5), measurement(COPIES, Buckets({1: 2, 4: 1}, 30)))
    encoder = MetricsEncoder("delta")
    decode(encoder, store)
    encoder.commit()

    store.fold([measurement(CALLS, 3), measurement(COPIES, Buckets({4: 2}, 50, 1))], LATER)
    calls, copies = points(decode(encoder, store, LATER)).values()

    assert (calls.as_int, calls.start_time_unix_nano, calls.time_unix_nano) == (3, NOW, LATER)
    assert (copies.positive.offset, list(copies.positive.bucket_counts)) == (4, [2])
    assert (copies.count, copies.sum, copies.zero_count, copies.start_time_unix_nano) == (3, 50.0, 1, NOW)


def test_delta_that_was_not_committed_comes_again() -> None:
    store = store_of(measurement(CALLS, 5))
    encoder = MetricsEncoder("delta")
    decode(encoder, store)

    store.fold([measurement(CALLS, 3)], LATER)
    point = only_point(decode(encoder, store, LATER))

    assert (point.as_int, point.start_time_unix_nano) == (8, START)


def test_delta_outlives_the_rebuilding_of_its_message() -> None:
    store = store_of(measurement(CALLS, 5, k="a"), measurement(CALLS, 5, k="b"))
    encoder = MetricsEncoder("delta")
    decode(encoder, store)
    encoder.commit()

    next(iter(store)).series.pop(("calls", attributes(k="a")))
    store.fold([measurement(CALLS, 1, k="b")], LATER)

    assert only_point(decode(encoder, store, LATER)).as_int == 1


def test_requests_are_split_by_bytes_and_hold_every_point_once() -> None:
    store = store_of(*(measurement(CALLS, i, r, k=f"k{i}") for i in range(200) for r in (PROCESS, OTHER)))
    encoder = MetricsEncoder(max_bytes=2_000)

    payloads = encoder.encode(store, NOW)

    assert all(len(p.body) == p.size_bytes <= 2_000 for p in payloads)
    assert sum(p.points for p in payloads) == 400
    assert len(points(decode(encoder, store))) == 400


def test_point_larger_than_the_limit_is_sent_alone() -> None:
    store = store_of(measurement(CALLS, 1), measurement(CALLS, 2, k="x" * 5_000))

    payloads = MetricsEncoder(max_bytes=1_000).encode(store, NOW)

    assert sorted(p.points for p in payloads) == [1, 1]


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_history_decodes_to_what_the_store_holds(temporality, data: st.DataObject) -> None:
    """Series come, change and go between exports; requests are tiny, so that they also split."""
    store = SeriesStore()
    encoder = MetricsEncoder(temporality, max_bytes=data.draw(st.sampled_from([150, 600, 10**6])))
    total: Counter[object] = Counter()
    step = st.tuples(
        st.sampled_from(SPECS), st.sampled_from("abcd"), st.sampled_from([PROCESS, OTHER]), st.integers(1, 9)
    )
    for now in range(NOW, NOW + data.draw(st.integers(1, 5))):
        for spec, k, resource, n in data.draw(st.lists(step, max_size=12)):
            value: Value = Buckets({n: n}, n) if spec is COPIES else n
            store.fold([measurement(spec, value, resource, k=k)], START)
        found = points(decode(encoder, store, now))
        encoder.commit()

        held = {
            (dict(owner.resource.attributes)["service.name"], s.metric.name, s.attributes): s
            for owner in store
            for s in owner.series.values()
        }
        assert set(found) == set(held)
        for key, series in held.items():
            point = found[key]
            if isinstance(series.value, Buckets):
                assert sum(point.positive.bucket_counts) == point.count
                seen, expected = point.count, series.value.count
            else:
                seen, expected = point.as_double if series.metric.floating else point.as_int, series.value
            if temporality == "delta" and series.metric.instrument in (Instrument.COUNTER, Instrument.HISTOGRAM):
                total[id(series)] += seen
                seen = total[id(series)]
            assert seen == expected
        if data.draw(st.booleans()):
            for owner in store:
                for name in (
                    data.draw(st.lists(st.sampled_from(sorted(owner.series)), max_size=2, unique=True))
                    if owner.series
                    else []
                ):
                    series = owner.series.pop(name)
                    total.pop(id(series), None)
