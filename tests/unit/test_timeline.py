"""A clock that is set makes no point end before it begins, no counter fall, and no time come twice."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_gpu.exporters import ExporterStats
from otel_gpu.exporters.file.exporter import FileExporter
from otel_gpu.exporters.file.settings import FileSettings
from otel_gpu.exporters.sdk.metrics import metrics_data
from otel_gpu.exporters.wire.metrics_protobuf import MetricsEncoder
from otel_gpu.service.timeline import Timeline
from otel_gpu.signals.metrics import Buckets, Instrument, Measurement, MetricSpec, Resource, SeriesStore, attributes
from tests.unit.graphs import one_pipeline

SECOND = 1_000_000_000
NOON = 1_795_262_400 * SECOND
CALLS = MetricSpec("calls", "{call}", Instrument.COUNTER, "Calls.")
WAIT = MetricSpec("wait", "s", Instrument.COUNTER, "Waits.", floating=True)
LEVEL = MetricSpec("level", "1", Instrument.GAUGE, "A level.")
USAGE = MetricSpec("usage", "By", Instrument.UPDOWNCOUNTER, "In use.")
SIZES = MetricSpec("sizes", "By", Instrument.HISTOGRAM, "Sizes.")
PROCESS = Resource(attributes({"process.pid": 7}))


class Clocks:
    """The time of day, as somebody sets it, and the time that passes."""

    def __init__(self) -> None:
        self.day_ns, self.steady_ns = NOON, 5 * SECOND
        self.timeline = Timeline(lambda: self.day_ns, lambda: self.steady_ns)

    def pass_by(self, seconds: float) -> None:
        self.day_ns += int(seconds * SECOND)
        self.steady_ns += int(seconds * SECOND)


class Source:
    """A receiver that measures the same again and again."""

    def collect(self) -> list[Measurement]:
        found = [
            Measurement(PROCESS, CALLS, (), 5),
            Measurement(PROCESS, WAIT, (), 0.5),
            Measurement(PROCESS, LEVEL, (), 3),
            Measurement(PROCESS, USAGE, (), 100),
            Measurement(PROCESS, SIZES, (), Buckets({2: 1}, 7)),
        ]
        return [m for m in found if m.value]

    def close(self) -> None: ...


class Sink:
    """An exporter that keeps what it was given, as OTLP says it."""

    name = "sink"

    def __init__(self, temporality) -> None:
        self.encoder = MetricsEncoder(temporality)
        self.points: dict[str, list[tuple[int, int, float]]] = {}

    def export_metrics(self, store: SeriesStore, now_ns: int) -> None:
        for payload in self.encoder.encode(store, now_ns):
            request = ExportMetricsServiceRequest.FromString(payload.body)
            for metric in request.resource_metrics[0].scope_metrics[0].metrics:
                kind = metric.WhichOneof("data")
                (point,) = getattr(metric, kind).data_points
                value = point.sum if kind == "exponential_histogram" else point.as_int or point.as_double
                self.points.setdefault(metric.name, []).append(
                    (point.start_time_unix_nano, point.time_unix_nano, value)
                )
        self.encoder.commit()
        metrics_data(store, now_ns)

    def shutdown(self, timeout_s: float) -> None: ...

    def stats(self) -> ExporterStats:
        return ExporterStats()


def run(sets: list[float], temporality="cumulative") -> tuple[Sink, Clocks]:
    """Collect and export after each time that the clock is set by so many seconds."""
    clocks, sink = Clocks(), Sink(temporality)
    pipeline = one_pipeline({"cuda": Source()}, [], [sink], timeline=clocks.timeline)
    for by_s in sets:
        clocks.pass_by(10)
        clocks.day_ns += int(by_s * SECOND)
        pipeline.collect()
        clocks.pass_by(0.5)
        pipeline.export()
    return sink, clocks


def test_a_clock_that_is_set_back_begins_counters_anew(caplog: pytest.LogCaptureFixture) -> None:
    sink, clocks = run([0, 0, -3600, 0])

    assert [(start, value) for start, _, value in sink.points["calls"]] == [
        (NOON, 5),
        (NOON, 10),
        (NOON, 10),  # what was counted until then, as of the time before
        (NOON - 3579 * SECOND, 5),
        (NOON - 3579 * SECOND, 10),
    ]
    assert [value for _, _, value in sink.points["usage"]] == [100, 200, 200, 300, 400]
    assert [value for _, _, value in sink.points["sizes"]] == [7, 14, 14, 7, 14]
    assert [value for _, _, value in sink.points["level"]] == [3] * 5
    assert sink.points["usage"][-1][0] == NOON - 3579 * SECOND
    assert sink.points["calls"][-1][1] == clocks.day_ns
    assert caplog.messages == ["the clock was set back: counters and histograms begin anew"]


def test_deltas_go_on_after_a_clock_is_set_back() -> None:
    sink, _ = run([0, 0, -3600, 0], "delta")

    assert [value for _, _, value in sink.points["calls"]] == [5, 5, 0, 5, 5]
    assert [value for _, _, value in sink.points["wait"]] == [0.5, 0.5, 0, 0.5, 0.5]
    assert [value for _, _, value in sink.points["sizes"]] == [7, 7, 0, 7, 7]


def test_a_clock_that_is_set_forward_is_followed(caplog: pytest.LogCaptureFixture) -> None:
    sink, clocks = run([0, 50 * 365 * 86_400, 0])

    assert [value for _, _, value in sink.points["calls"]] == [5, 10, 15]
    assert sink.points["calls"][-1][:2] == (NOON, clocks.day_ns)
    assert caplog.messages == []


def test_what_was_collected_but_not_exported_is_not_lost() -> None:
    clocks, sink = Clocks(), Sink("delta")
    pipeline = one_pipeline({"cuda": Source()}, [], [sink], timeline=clocks.timeline)
    for by_s in (0, -3600, 0):
        clocks.pass_by(10)
        clocks.day_ns += by_s * SECOND
        pipeline.collect()
    pipeline.export()

    assert sum(value for _, _, value in sink.points["calls"]) == 15


def test_a_clock_that_is_set_back_between_collection_and_export_makes_no_time_come_twice() -> None:
    clocks, sink = Clocks(), Sink("cumulative")
    pipeline = one_pipeline({"cuda": Source()}, [], [sink], timeline=clocks.timeline)
    for _ in range(3):
        clocks.pass_by(10)
        pipeline.collect()
        clocks.day_ns -= 60 * SECOND
        pipeline.export()

    assert_sound(sink, deltas=False)


def test_a_clock_that_stands_still_makes_no_time_come_twice() -> None:
    clocks, sink = Clocks(), Sink("cumulative")
    pipeline = one_pipeline({"cuda": Source()}, [], [sink], timeline=clocks.timeline)
    for _ in range(5):
        pipeline.collect()
        pipeline.export()

    assert [value for _, _, value in sink.points["calls"]] == [5, 10, 15, 20, 25]
    assert_sound(sink, deltas=False)


def assert_sound(sink: Sink, *, deltas: bool) -> None:
    for name, points in sink.points.items():
        for start, time, value in points:
            assert value >= 0
            assert start < time
        for (start, time, value), (next_start, next_time, next_value) in itertools.pairwise(points):
            assert next_time != time
            if name == "level":
                continue
            if next_time > time:
                # Time goes on: without a gap, and as a counter does.
                assert next_start == (time if deltas and name != "usage" else start)
                assert deltas or next_value >= value or name == "usage"
            else:
                assert next_start < time


@given(st.lists(st.floats(-100_000, 100_000), min_size=1, max_size=15), st.sampled_from(["cumulative", "delta"]))
def test_however_the_clock_is_set_points_are_sound_and_nothing_is_lost(sets: list[float], temporality) -> None:
    sink, _ = run(sets, temporality)

    assert_sound(sink, deltas=temporality == "delta")
    if temporality == "delta":
        assert sum(value for _, _, value in sink.points["calls"]) == 5 * len(sets)
        assert sum(value for _, _, value in sink.points["sizes"]) == 7 * len(sets)


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_files_say_the_same(tmp_path: Path, temporality) -> None:
    clocks = Clocks()
    exporter = FileExporter(FileSettings(str(tmp_path), temporality))
    pipeline = one_pipeline({"cuda": Source()}, [], [exporter], timeline=clocks.timeline)
    for by_s in (0, -3600, 0):
        clocks.pass_by(10)
        clocks.day_ns += by_s * SECOND
        pipeline.collect()
        pipeline.export()
    exporter.shutdown(1)

    values = []
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        metrics = json.loads(line)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
        (point,) = next(m for m in metrics if m["name"] == "calls")["sum"]["dataPoints"]
        assert int(point["startTimeUnixNano"]) < int(point["timeUnixNano"])
        values.append(int(point["asInt"]))
    assert values == ([5, 5, 5, 10] if temporality == "cumulative" else [5, 0, 5, 5])


def test_the_log_says_it_each_time(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run([0, -60, -60, 0])

    assert len(caplog.messages) == 2
