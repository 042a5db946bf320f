"""Data in, data out: receivers are read, processors change what they measured, exporters get the series."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from otel_gpu.exporters import ExporterStats
from otel_gpu.model import Buckets, Instrument, Measurement, MetricSpec, Resource, SeriesStore, Value, attributes
from otel_gpu.pipeline import Pipeline
from otel_gpu.processors.kernel_names import KernelNames
from otel_gpu.telemetry import KERNEL_LAUNCH_CALLS

CALLS = MetricSpec("calls", "{call}", Instrument.COUNTER, "Calls.")
LEVEL = MetricSpec("level", "1", Instrument.GAUGE, "A level.")
SIZES = MetricSpec("sizes", "By", Instrument.HISTOGRAM, "Sizes.")
ONE, TWO = (Resource(attributes({"process.pid": n})) for n in (1, 2))


class Source:
    """A receiver that measures what it is told."""

    def __init__(self, *batches: list[Measurement] | Exception) -> None:
        self._batches = list(batches)

    def collect(self) -> list[Measurement]:
        batch = self._batches.pop(0) if self._batches else []
        if isinstance(batch, Exception):
            raise batch
        return batch

    def close(self) -> None:
        pass


class Sink:
    """An exporter that keeps what it was given."""

    name = "sink"

    def __init__(self) -> None:
        self.exports: list[dict[tuple[Resource, str], Value]] = []

    def export_metrics(self, store: SeriesStore, _now_ns: int) -> None:
        self.exports.append({(o.resource, name): series.value for o in store for (name, _), series in o.series.items()})

    def stats(self) -> ExporterStats:
        return ExporterStats()

    def shutdown(self, timeout_s: float) -> None:
        pass


def measure(metric: MetricSpec, value: Value, resource: Resource = ONE, **attrs: str) -> Measurement:
    return Measurement(resource, metric, attributes(attrs), value)


def run(*batches: list[Measurement] | Exception) -> tuple[Pipeline, Sink]:
    sink = Sink()
    pipeline = Pipeline([Source(*batches)], [], [sink])
    for _ in batches:
        pipeline.collect()
    return pipeline, sink


def test_counters_add_up_gauges_do_not_and_histograms_merge() -> None:
    pipeline, sink = run(
        [measure(CALLS, 2), measure(LEVEL, 7), measure(SIZES, Buckets({3: 1}, 9))],
        [measure(CALLS, 3), measure(LEVEL, 5), measure(SIZES, Buckets({3: 1, 5: 2}, 109))],
    )

    pipeline.export()

    assert sink.exports == [{(ONE, "calls"): 5, (ONE, "level"): 5, (ONE, "sizes"): Buckets({3: 2, 5: 2}, 118)}]


def test_a_snapshot_does_not_change_with_what_comes_later() -> None:
    sizes = Buckets({3: 1}, 9)
    pipeline, _ = run([measure(SIZES, sizes)])
    (before,) = pipeline.snapshot()

    pipeline.add(Source([measure(SIZES, Buckets({3: 4}, 36))]))
    pipeline.collect()

    assert before.value == Buckets({3: 1}, 9)
    assert pipeline.snapshot()[0].value == Buckets({3: 5}, 45)
    assert (before.name, before.unit, before.resource) == ("sizes", "By", ONE)


def test_an_ended_resource_is_exported_once_more_and_then_gone() -> None:
    pipeline, sink = run([measure(CALLS, 1, ONE), measure(CALLS, 1, TWO)])
    pipeline.collect([ONE])

    pipeline.export()
    pipeline.export()

    assert [set(e) for e in sink.exports] == [{(ONE, "calls"), (TWO, "calls")}, {(TWO, "calls")}]


def test_processors_forget_what_has_ended() -> None:
    name = "cuda.kernel.name"
    launches = [Measurement(ONE, KERNEL_LAUNCH_CALLS, attributes({name: f"k{n}"}), 1) for n in range(3)]
    names = KernelNames(1)
    pipeline = Pipeline([Source(launches)], [names], [Sink()])
    pipeline.collect([ONE])

    pipeline.export()

    assert names._rankings == {}


def test_processors_see_the_measurements_in_their_order() -> None:
    seen: list[str] = []

    class Note:
        def __init__(self, word: str, change: Callable[[int], int]) -> None:
            self._word, self._change = word, change

        def process(self, measurements: list[Measurement]) -> list[Measurement]:
            seen.append(self._word)
            return [Measurement(m.resource, m.metric, m.attributes, self._change(m.value)) for m in measurements]

        def forget(self, resource: Resource) -> None:
            pass

    pipeline = Pipeline(
        [Source([measure(CALLS, 5)])], [Note("add", lambda v: v + 1), Note("double", lambda v: v * 2)], []
    )
    pipeline.collect()

    assert seen == ["add", "double"]
    assert [p.value for p in pipeline.snapshot()] == [12]


def test_a_receiver_that_cannot_be_read_once_costs_nothing_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    broken = Source(OSError("no such map"), [measure(CALLS, 4, TWO)])
    pipeline = Pipeline([broken, Source([measure(CALLS, 1)], [measure(CALLS, 1)])], [], [])

    with caplog.at_level(logging.ERROR):
        pipeline.collect()
    pipeline.collect()

    assert "Source could not be read: no such map" in caplog.text
    assert {p.resource: p.value for p in pipeline.snapshot()} == {ONE: 2, TWO: 4}


def test_exports_are_timed_by_exporter() -> None:
    pipeline = Pipeline([], [], [Sink(), Sink()])
    pipeline.export()

    assert [name for name, seconds in pipeline.take_durations() if seconds >= 0] == ["sink", "sink"]
    assert pipeline.take_durations() == []
