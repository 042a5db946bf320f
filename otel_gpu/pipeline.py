"""How does a measurement reach the exporters? Receivers, processors, the store, once an interval."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import telemetry
from .exporters import MetricsExporter
from .model import Attributes, Buckets, Measurement, Resource, SeriesStore, Value
from .printable import escaped
from .processors import Processor
from .receivers import Receiver
from .series_limits import SeriesLimits
from .supervision import Component, Health
from .timeline import Timeline

_log = logging.getLogger(__name__)

_MAX_SAID = 100
"""Processes of which the log says that they have too many series."""


@dataclass(frozen=True, slots=True)
class Point:
    """One series as it stands, for programs that use the library."""

    resource: Resource
    name: str
    unit: str
    attributes: Attributes
    value: Value


class Pipeline:
    """Carries metrics from receivers to exporters. Safe to use from several threads.

    What one of its parts raises is noted as that component's failure, and costs the others nothing.
    """

    def __init__(
        self,
        receivers: Mapping[str, Receiver],
        processors: Sequence[Processor],
        exporters: Sequence[MetricsExporter],
        *,
        limits: SeriesLimits | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        """`receivers` are read in their order; each is a component of its own, by its name."""
        self._receivers = [(Component(name), receiver) for name, receiver in receivers.items()]
        self._processors = processors
        self._processing = Component("processors")
        self._exporters = [(Component(f"export {e.name}"), e) for e in exporters]
        self._limits = limits or SeriesLimits()
        self._store = SeriesStore(self._limits)
        self._said = 0
        self._folding = Component("series")
        # A receiver that hangs must not keep from being exported what is known.
        self._reading = threading.Lock()
        self._lock = threading.Lock()
        self._timeline = timeline or Timeline()
        self._since_ns = self._timeline.next()
        self._durations: list[tuple[str, float]] = []

    def health(self) -> list[Health]:
        """Say how the receivers, the processors and the exporters are."""
        parts = [part for part, _ in self._receivers] + [part for part, _ in self._exporters]
        return [part.health() for part in (*parts, self._processing, self._folding)]

    def collect(self, ended: Sequence[Resource] = ()) -> bool:
        """Read the receivers and fold what they measured; then note the resources that have ended.

        False when not all could be read: nothing has ended then, as the next reading may bring more of it.
        """
        with self._reading:
            with self._lock:
                if self._timeline.was_set_back:
                    self._begin_anew()
                now = self._timeline.next()
            unread = len(self._receivers)
            for component, receiver in self._receivers:
                with component:
                    measurements = receiver.collect()
                    unread -= 1
                    self._take_in(measurements)
            self._since_ns = now
            if unread:
                return False
            with self._lock:
                self._note_overflow()
                for resource in ended:
                    self._store.end(resource)
            return True

    def _take_in(self, measurements: list[Measurement]) -> None:
        for processor in self._processors:
            # What it would have added is missing then, and not what was measured.
            with self._processing:
                measurements = processor.process(measurements)
        rest = iter(measurements)
        with self._lock:
            for _ in range(len(measurements) + 1):
                with self._folding:
                    self._store.fold(rest, self._since_ns)
                    break
                # One that cannot be added is left out; the others follow it.

    def _note_overflow(self) -> None:
        """Let each process say how much of its detail was lost, and the log once of each."""
        for resource, count, is_news in self._store.take_overflowed():
            lost = Measurement(resource, telemetry.SERIES_OVERFLOW, (), count)
            self._store.fold([lost], self._since_ns, limited=False)
            if is_news and self._said < _MAX_SAID:
                self._said += 1
                known = dict(resource.attributes)
                _log.warning(
                    "process %s (%s) has too many series, %d of one metric or %d in all: the others are added up in those "
                    "with otel.metric.overflow",
                    known.get("process.pid", "?"),
                    escaped(str(known.get("service.name", "?"))),
                    self._limits.per_metric,
                    self._limits.per_resource,
                )

    def export(self) -> None:
        """Hand every series to every exporter, and drop those that have ended."""
        with self._lock:
            self._export(self._timeline.next())
            for resource in self._store.sweep():
                for processor in self._processors:
                    with self._processing:
                        processor.forget(resource)

    def _export(self, now: int) -> None:
        for component, exporter in self._exporters:
            began = time.perf_counter()
            with component:
                exporter.export_metrics(self._store, now)
            self._durations.append((exporter.name, time.perf_counter() - began))

    def _begin_anew(self) -> None:
        """Let all that is counted begin at a time of the clock as it is set now.

        A point whose time is before its beginning, or before that of an earlier point, is refused by receivers, and is
        a fall to those who look at its value. What was counted until now is exported as of the time before.
        """
        _log.warning("the clock was set back: counters and histograms begin anew")
        last_ns, self._since_ns = self._timeline.begin_anew()
        self._export(last_ns)
        self._store.restart(self._since_ns)

    def take_durations(self) -> list[tuple[str, float]]:
        """Return how long each export took, in seconds, by exporter; once."""
        taken, self._durations = self._durations, []
        return taken

    def snapshot(self) -> list[Point]:
        """Return every series as it stands."""
        with self._lock:
            return [
                Point(
                    owner.resource,
                    series.metric.name,
                    series.metric.unit,
                    series.attributes,
                    series.value.copy() if isinstance(series.value, Buckets) else series.value,
                )
                for owner in self._store
                for series in owner.series.values()
            ]
