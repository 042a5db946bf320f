"""Data in, data out: receivers are read, processors change what they measured, exporters get the series."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from otel_gpu.exporters import ExporterStats
from otel_gpu.processors.kernel_names.processor import KernelNames
from otel_gpu.service.graph import Graph
from otel_gpu.signals.cuda import KERNEL_LAUNCH_CALLS
from otel_gpu.signals.metrics import (
    Buckets,
    Instrument,
    Measurement,
    MetricSpec,
    Resource,
    SeriesStore,
    Value,
    attributes,
)
from tests.unit.graphs import one_pipeline

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


def run(*batches: list[Measurement] | Exception) -> tuple[Graph, Sink]:
    sink = Sink()
    pipeline = one_pipeline({"cuda": Source(*batches)}, [], [sink])
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
    pipeline = one_pipeline({"cuda": Source([measure(SIZES, sizes)], [measure(SIZES, Buckets({3: 4}, 36))])}, [], [])
    pipeline.collect()
    (before,) = pipeline.snapshot()

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
    pipeline = one_pipeline({"cuda": Source(launches)}, [names], [Sink()])
    pipeline.collect([ONE])

    pipeline.export()

    assert names._rankings == {}


def test_processors_see_the_measurements_in_their_order() -> None:
    seen: list[str] = []

    class Note:
        def __init__(self, word: str, change: Callable[[int], int]) -> None:
            self._word, self._change = word, change

        def metrics(self, measurements: list[Measurement]) -> list[Measurement]:
            seen.append(self._word)
            return [Measurement(m.resource, m.metric, m.attributes, self._change(m.value)) for m in measurements]

        def forget(self, resource: Resource) -> None:
            pass

    pipeline = one_pipeline(
        {"cuda": Source([measure(CALLS, 5)])}, [Note("add", lambda v: v + 1), Note("double", lambda v: v * 2)], []
    )
    pipeline.collect()

    assert seen == ["add", "double"]
    assert [p.value for p in pipeline.snapshot()] == [12]


@pytest.mark.parametrize("error", (OSError("no such map"), MemoryError(), ValueError("bad row")))
def test_a_receiver_that_cannot_be_read_once_costs_nothing_of_the_others(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Source(error, [measure(CALLS, 4, TWO)])
    pipeline = one_pipeline({"cuda": broken, "self": Source([measure(CALLS, 1)], [measure(CALLS, 1)])}, [], [])

    with caplog.at_level(logging.ERROR):
        pipeline.collect()
    assert _trouble(pipeline) == ["cuda"]
    pipeline.collect()

    assert f"cuda: {type(error).__name__}" in caplog.text
    assert {p.resource: p.value for p in pipeline.snapshot()} == {ONE: 2, TWO: 4}
    assert _trouble(pipeline) == []


def test_what_a_processor_cannot_do_is_missing_and_nothing_else() -> None:
    class Broken:
        def metrics(self, _measurements: list[Measurement]) -> list[Measurement]:
            raise KeyError("device")

        def forget(self, resource: Resource) -> None:
            raise KeyError(resource)

    sink = Sink()
    pipeline = one_pipeline({"cuda": Source([measure(CALLS, 5)], [measure(CALLS, 2)])}, [Broken()], [sink])
    pipeline.collect([ONE])
    pipeline.export()
    pipeline.collect()

    assert sink.exports == [{(ONE, "calls"): 5}]
    assert [p.value for p in pipeline.snapshot()] == [2]
    assert _trouble(pipeline) == ["processors"]


def test_a_measurement_that_cannot_be_added_costs_none_of_the_others() -> None:
    good, bad = measure(CALLS, 1), measure(SIZES, Buckets({0: 1}, 1.0))
    spoilt = Measurement(ONE, SIZES, bad.attributes, "text")
    pipeline = one_pipeline({"cuda": Source([bad], [good, spoilt, good, spoilt, good])}, [], [])
    pipeline.collect()
    pipeline.collect()

    assert {p.name: p.value for p in pipeline.snapshot()}["calls"] == 3
    assert {h.component: h.failures for h in pipeline.health()}["series"] == 2


def test_an_exporter_that_fails_keeps_nothing_from_the_others() -> None:
    class Broken(Sink):
        name = "broken"

        def export_metrics(self, store: SeriesStore, _now_ns: int) -> None:
            raise MemoryError

    sink = Sink()
    pipeline = one_pipeline({"cuda": Source([measure(CALLS, 5)])}, [], [Broken(), sink])
    pipeline.collect()
    pipeline.export()

    assert sink.exports == [{(ONE, "calls"): 5}]
    assert _trouble(pipeline) == ["export broken"]


def _trouble(pipeline: Graph) -> list[str]:
    return [health.component for health in pipeline.health() if not health.is_good]


def test_exports_are_timed_by_exporter() -> None:
    pipeline = one_pipeline({}, [], [Sink(), Sink()])
    pipeline.export()

    assert [name for name, seconds in pipeline.take_durations() if seconds >= 0] == ["sink", "sink"]
    assert pipeline.take_durations() == []
