"""One process with any number of series costs itself its detail, and nobody else anything."""

from __future__ import annotations

from collections import Counter

import pytest

from otel_gpu.service.series_limits import SeriesLimits
from otel_gpu.signals.metrics import (
    OVERFLOW,
    Buckets,
    Instrument,
    Measurement,
    MetricSpec,
    Resource,
    SeriesStore,
    attributes,
)
from otel_gpu.signals.self_metrics import SERIES_OVERFLOW
from tests.unit.graphs import one_pipeline

CALLS = MetricSpec("calls", "{call}", Instrument.COUNTER, "Calls.")
SIZES = MetricSpec("sizes", "By", Instrument.HISTOGRAM, "Sizes.")
USAGE = MetricSpec("usage", "By", Instrument.UPDOWNCOUNTER, "In use.")
LEVEL = MetricSpec("level", "1", Instrument.GAUGE, "A level.")
OTHER = MetricSpec("other", "{call}", Instrument.COUNTER, "Other calls.")
HOG, MODEST = (
    Resource(attributes({"process.pid": pid, "service.name": name})) for pid, name in ((1, "hog\n"), (2, "modest"))
)
SMALL = SeriesLimits(per_metric=10, per_resource=15, total=30, always=2)


class Source:
    """A receiver that measures what it is told."""

    def __init__(self, *batches: list[Measurement]) -> None:
        self._batches = list(batches)

    def collect(self) -> list[Measurement]:
        return self._batches.pop(0) if self._batches else []

    def close(self) -> None: ...


def many(metric: MetricSpec, count: int, owner: Resource = HOG, first: int = 0) -> list[Measurement]:
    def value(n: int) -> int | Buckets:
        return Buckets({2: 1}, n) if metric is SIZES else n

    return [Measurement(owner, metric, attributes(k=f"{n}"), value(n)) for n in range(first, first + count)]


def total(store: SeriesStore, owner: Resource, metric: MetricSpec) -> float:
    (found,) = [o for o in store if o.resource == owner]
    values = [s.value for (name, _), s in found.series.items() if name == metric.name]
    return sum(v.sum if isinstance(v, Buckets) else v for v in values)


@pytest.mark.parametrize("metric", [CALLS, SIZES, USAGE])
def test_totals_stay_exact(metric: MetricSpec) -> None:
    store = SeriesStore(SMALL)
    for turn in range(3):
        store.fold(many(metric, 100, first=turn * 50), 1)

    (owner,) = store
    assert len(store) == len(owner.series) == 11
    assert total(store, HOG, metric) == sum(sum(range(turn * 50, turn * 50 + 100)) for turn in range(3))
    # Those that were there first keep their series.
    assert store.take_overflowed() == [(HOG, 90 + 100 + 100, True)]


def test_gauges_beyond_are_left_out() -> None:
    store = SeriesStore(SMALL)

    store.fold(many(LEVEL, 100), 1)

    (owner,) = store
    assert [dict(a)["k"] for _, a in owner.series] == [str(n) for n in range(10)]
    assert store.take_overflowed() == [(HOG, 90, True)]


def test_one_metric_does_not_take_the_place_of_another() -> None:
    store = SeriesStore(SMALL)
    for metric in (CALLS, OTHER, USAGE):
        store.fold(many(metric, 100), 1)

    (owner,) = store
    counts = Counter(name for name, attrs in owner.series if attrs != OVERFLOW)
    assert counts == {"calls": 10, "other": 4}
    assert {name for name, attrs in owner.series if attrs == OVERFLOW} == {"calls", "other", "usage"}
    assert [total(store, HOG, metric) for metric in (CALLS, OTHER, USAGE)] == [4950] * 3


def test_however_many_come_late_there_is_an_end() -> None:
    limits = SeriesLimits()
    store = SeriesStore(limits)
    for pid in range(2_000):
        resource = Resource((("process.pid", pid),))
        store.fold([Measurement(resource, CALLS, (("k", str(k)),), 1) for k in range(150)], 1)

    # One for each process besides holds what has no series of its own.
    assert len(store) <= limits.total + 100 * limits.always + 2_000
    assert sum(s.value for owner in store for s in owner.series.values()) == 2_000 * 150


def test_a_process_that_comes_late_finds_room() -> None:
    hogs = [Resource(attributes({"process.pid": pid})) for pid in range(10, 60)]
    store = SeriesStore(SeriesLimits(per_metric=10, per_resource=10, total=100, always=3))
    for _ in range(3):
        for hog in hogs:
            store.fold(many(CALLS, 100, hog), 1)
    before = len(store)

    store.fold(many(CALLS, 3, MODEST), 1)

    assert before <= 100 + len(hogs) * (3 + 1)
    (owner,) = [o for o in store if o.resource == MODEST]
    assert [dict(a)["k"] for _, a in owner.series] == ["0", "1", "2"]


def test_room_that_an_ended_process_had_is_given_back() -> None:
    store = SeriesStore(SMALL)
    for _ in range(50):
        store.fold(many(CALLS, 100), 1)
        store.end(HOG)
        store.sweep()

    store.fold(many(CALLS, 3, MODEST), 1)

    assert len(store) == 3


def test_a_restart_changes_no_limit() -> None:
    store = SeriesStore(SMALL)
    store.fold(many(CALLS, 100), 1)

    store.restart(2)
    store.fold(many(CALLS, 100), 3)

    assert len(store) == 11
    assert total(store, HOG, CALLS) == 4950


def test_the_loss_is_counted_by_the_process_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    batches = [[*many(CALLS, 100), *many(CALLS, 3, MODEST)] for _ in range(3)]
    pipeline = one_pipeline({"cuda": Source(*batches)}, [], [], limits=SMALL)

    for _ in batches:
        pipeline.collect()

    lost = {p.resource: p.value for p in pipeline.snapshot() if p.name == SERIES_OVERFLOW.name}
    assert lost == {HOG: 270}
    (said,) = [r.getMessage() for r in caplog.records]
    assert said == (
        r"process 1 (hog\n) has too many series, 10 of one metric or 15 in all: the others are added up in those with "
        "otel.metric.overflow"
    )
    modest = [p for p in pipeline.snapshot() if p.resource == MODEST]
    assert {dict(p.attributes)["k"]: p.value for p in modest} == {"0": 0, "1": 3, "2": 6}


def test_limits_leave_room_for_the_kernels_that_are_to_have_names() -> None:
    assert SeriesLimits.for_kernels(50) == SeriesLimits()
    assert SeriesLimits.for_kernels(100_000).per_metric >= 8 * 100_000
