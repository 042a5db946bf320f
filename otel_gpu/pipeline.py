"""How does a measurement reach the exporters? Receivers, processors, the store, once an interval."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from .exporters import MetricsExporter
from .model import Attributes, Buckets, Resource, SeriesStore, Value
from .processors import Processor
from .receivers import Receiver

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Point:
    """One series as it stands, for programs that use the library."""

    resource: Resource
    name: str
    unit: str
    attributes: Attributes
    value: Value


class Pipeline:
    """Carries metrics from receivers to exporters. Safe to use from several threads."""

    def __init__(
        self, receivers: Sequence[Receiver], processors: Sequence[Processor], exporters: Sequence[MetricsExporter]
    ) -> None:
        self._receivers = list(receivers)
        self._processors = processors
        self._exporters = exporters
        self._store = SeriesStore()
        self._lock = threading.Lock()
        self._since_ns = time.time_ns()
        self._durations: list[tuple[str, float]] = []

    def add(self, receiver: Receiver) -> None:
        """Read another receiver from now on, after the others."""
        with self._lock:
            self._receivers.append(receiver)

    def collect(self, ended: Sequence[Resource] = ()) -> None:
        """Read the receivers and fold what they measured; then note the resources that have ended."""
        with self._lock:
            now = time.time_ns()
            for receiver in self._receivers:
                try:
                    measurements = receiver.collect()
                except OSError as e:
                    # The kernel or /proc refused one read: the next one will bring what this one missed.
                    _log.error("%s could not be read: %s", type(receiver).__name__, e)
                    continue
                for processor in self._processors:
                    measurements = processor.process(measurements)
                self._store.fold(measurements, self._since_ns)
            self._since_ns = now
            for resource in ended:
                self._store.end(resource)

    def export(self) -> None:
        """Hand every series to every exporter, and drop those that have ended."""
        with self._lock:
            now = time.time_ns()
            for exporter in self._exporters:
                began = time.perf_counter()
                exporter.export_metrics(self._store, now)
                self._durations.append((exporter.name, time.perf_counter() - began))
            for resource in self._store.sweep():
                for processor in self._processors:
                    processor.forget(resource)

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
