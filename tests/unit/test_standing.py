"""What is not known any more is not exported, and goes on from where it stood when it is known again."""

from __future__ import annotations

from otel_gpu.signals.metrics import Instrument, Measurement, MetricSpec, Resource, SeriesStore, attributes
from otel_gpu.signals.standing import Standing

HOST, GONE = (Resource(attributes({"host.name": name})) for name in ("h", "gone"))
COUNT, LEVEL, NOW = (
    MetricSpec(name, "1", instrument, "")
    for name, instrument in (
        ("count", Instrument.COUNTER),
        ("level", Instrument.UPDOWNCOUNTER),
        ("now", Instrument.GAUGE),
    )
)
SPECS = (COUNT, LEVEL, NOW)


def exported(store: SeriesStore) -> dict[str, object]:
    return {series.metric.name: series.value for owner in store for series in owner.series.values()}


def test_a_silent_series_goes_on_from_where_it_stood() -> None:
    store, standing = SeriesStore(), Standing()

    def fold(*values: int) -> dict[str, object]:
        measured = [Measurement(HOST, metric, (), value) for metric, value in zip(SPECS, values, strict=False)]
        store.fold([*measured, *standing.now(measured)], 1)
        return exported(store)

    assert fold(5, 7, 9) == {"count": 5, "level": 7, "now": 9}
    assert fold(1) == {"count": 6}
    assert fold() == {}
    assert len(store) == 3
    assert fold(2, -3, 4) == {"count": 8, "level": 4, "now": 4}
    store.end(HOST)
    fold()
    store.sweep()
    assert len(store) == 0


def test_a_silent_series_restarts_with_the_others() -> None:
    store = SeriesStore()
    store.fold([Measurement(HOST, metric, (), 5) for metric in SPECS], 1)
    store.fold([Measurement(HOST, metric, (), None) for metric in SPECS], 1)
    store.restart(2)
    store.fold([Measurement(HOST, metric, (), 1) for metric in SPECS], 3)

    assert exported(store) == {"count": 1, "level": 6, "now": 1}


def test_what_falls_silent_makes_no_series() -> None:
    store = SeriesStore()
    store.fold([Measurement(GONE, NOW, (), None)], 1)

    assert list(store) == []
