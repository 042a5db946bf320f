"""How does what receivers give reach the exporters? Through the processors of each pipeline, once an interval.

A receiver is read once, however many pipelines it is in. Each pipeline of metrics has a store of its own, for what one leaves
out or renames another carries as it was; spans and profiles pass in lists.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from ..components.processors import Processor
from ..components.receivers import GivesMetrics, Preparing
from ..exporters import PipelineExporter
from ..runtime.supervision import Component, Health
from ..signals import self_metrics
from ..signals.metrics import Measurement, Point, Resource, SeriesStore, points
from ..text import escaped
from .batches import Batches
from .held import Held, given_back
from .lifetimes import Lifetimes
from .series_limits import SeriesLimits
from .timeline import Timeline

_log = logging.getLogger(__name__)

_MAX_SAID = 100
"""Processes of which the log says that they have too many series."""


class Pipeline:
    """What some receivers measure, on its way through some processors to some exporters. Used by one graph."""

    def __init__(
        self,
        receivers: Collection[str],
        processors: Sequence[Processor],
        exporters: Sequence[PipelineExporter],
        limits: SeriesLimits | None = None,
    ) -> None:
        """`receivers` are names; processors are asked in their order."""
        self.receivers = frozenset(receivers)
        self.processors = processors
        self.exporters = exporters
        self.limits = limits or SeriesLimits()
        self.store = SeriesStore(self.limits)
        self.held = Held()


class Graph:
    """Carries what receivers give to exporters, through all pipelines. Safe to use from several threads.

    What one of its parts raises is noted as that component's failure, and costs the others nothing.
    """

    def __init__(
        self,
        receivers: Mapping[str, GivesMetrics],
        pipelines: Sequence[Pipeline],
        *,
        batches: Sequence[Batches[Any]] = (),
        completed_by: Sequence[Processor] = (),
        timeline: Timeline | None = None,
        is_selected: Callable[[Resource], bool] = attrgetter("is_selected"),
    ) -> None:
        """`receivers` are read in their order; each is a component of its own, by its name.

        `batches` are the pipelines of other signals. What receivers measured is `completed_by` what only several of them know together, for every pipeline alike. `is_selected` says of whom
        the operator wants to hear.
        """
        self._receivers = [(Component(name), name, receiver) for name, receiver in receivers.items()]
        self._batches = batches
        self._completed_by = completed_by
        self._is_selected = is_selected
        self._processing = Component("processors")
        self._pipelines = [(pipeline, Lifetimes(pipeline.processors, self._processing)) for pipeline in pipelines]
        self._ended: dict[Resource, None] = {}
        exporters = {e.name: e for pipeline in pipelines for e in pipeline.exporters}
        self._exporters = {name: Component(f"export {name}") for name in exporters}
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
        parts = [part for part, _, _ in self._receivers] + list(self._exporters.values())
        of_metrics = [part.health() for part in (*parts, self._processing, self._folding)]
        return [*of_metrics, *(health for batches in self._batches for health in batches.health())]

    def collect(self, ended: Sequence[Resource] = ()) -> bool:
        """Read the receivers and fold what they measured; then note the resources that have ended.

        False when not all could be read: nothing has ended then, as the next reading may bring more of it.
        """
        with self._reading:
            with self._lock:
                if self._timeline.was_set_back:
                    self._begin_anew()
                now = self._timeline.next()
            for component, _, receiver in self._receivers:
                if isinstance(receiver, Preparing):
                    with component:
                        receiver.prepare()
            with self._lock:
                for pipeline, lifetimes in self._pipelines:
                    for resource, before in lifetimes.learn():
                        self._move(pipeline, lifetimes, resource, before)
            unread = len(self._receivers)
            for component, name, receiver in self._receivers:
                with component:
                    measurements = receiver.collect()
                    unread -= 1
                    self._take_in(name, measurements)
            self._since_ns = now
            if unread:
                return False
            with self._lock:
                self._ended.update(dict.fromkeys(ended))
                for pipeline, lifetimes in self._pipelines:
                    self._note_overflow(pipeline)
                    for resource in ended:
                        lifetimes.end(resource)
            return True

    def _take_in(self, receiver: str, measurements: list[Measurement]) -> None:
        # What completes them may need those of all programs, as a device's total does.
        completed = self._processed(self._completed_by, measurements)
        measurements = [m for m in completed if self._is_selected(m.resource)]
        for pipeline, lifetimes in self._pipelines:
            if receiver not in pipeline.receivers:
                continue
            processed = self._processed(pipeline.processors, measurements)
            with self._lock:
                lifetimes.note(m.resource for m in measurements)
                if lifetimes.changes:
                    pipeline.held.note(measurements)
                self._fold(pipeline, processed)

    def _move(self, pipeline: Pipeline, lifetimes: Lifetimes, resource: Resource, before: Resource) -> None:
        """Have what a process holds go with it from the resource that it was until now."""
        if held := pipeline.held.of(resource):
            lifetimes.note([resource])
            self._fold(pipeline, [replace(m, resource=before) for m in given_back(held)])
            self._fold(pipeline, self._processed(pipeline.processors, held))

    def _fold(self, pipeline: Pipeline, measurements: list[Measurement]) -> None:
        rest = iter(measurements)
        for _ in range(len(measurements) + 1):
            with self._folding:
                pipeline.store.fold(rest, self._since_ns)
                break
            # One that cannot be added is left out; the others follow it.

    def _processed(self, processors: Sequence[Processor], measurements: list[Measurement]) -> list[Measurement]:
        for processor in processors:
            # What it would have added is missing then, and not what was measured.
            with self._processing:
                measurements = processor.metrics(measurements)
        return measurements

    def _note_overflow(self, pipeline: Pipeline) -> None:
        """Let each process say how much of its detail was lost, and the log once of each."""
        for resource, count, is_news in pipeline.store.take_overflowed():
            lost = Measurement(resource, self_metrics.SERIES_OVERFLOW, (), count)
            pipeline.store.fold([lost], self._since_ns, limited=False)
            if is_news and self._said < _MAX_SAID:
                self._said += 1
                known = dict(resource.attributes)
                _log.warning(
                    "process %s (%s) has too many series, %d of one metric or %d in all: the others are added up in those "
                    "with otel.metric.overflow",
                    known.get("process.pid", "?"),
                    escaped(str(known.get("service.name", "?"))),
                    pipeline.limits.per_metric,
                    pipeline.limits.per_resource,
                )

    def export(self) -> None:
        """Hand every series to every exporter of its pipeline, and drop those that have ended."""
        with self._lock:
            for pipeline, lifetimes in self._pipelines:
                if lifetimes.changes:
                    held = [m for resource in self._ended for m in pipeline.held.release(resource)]
                    self._fold(pipeline, self._processed(pipeline.processors, held))
                for resource in lifetimes.over():
                    pipeline.store.end(resource)
            self._export(self._timeline.next())
            gone = [(processor, resource) for resource in self._ended for processor in self._completed_by]
            self._ended.clear()
            for pipeline, lifetimes in self._pipelines:
                pipeline.store.sweep()
                gone += lifetimes.forget()
            for processor, resource in gone:
                if (forget := getattr(processor, "forget", None)) is not None:
                    with self._processing:
                        forget(resource)

    def export_batches(self, *, last: bool = False) -> None:
        """Hand spans and profiles to their exporters; with `last`, all that there are. By one thread at a time."""
        for batches in self._batches:
            batches.export(last=last)

    def _export(self, now: int) -> None:
        for pipeline, _ in self._pipelines:
            for exporter in pipeline.exporters:
                began = time.perf_counter()
                with self._exporters[exporter.name]:
                    exporter.export_metrics(pipeline.store, now)
                self._durations.append((exporter.name, time.perf_counter() - began))

    def _begin_anew(self) -> None:
        """Let all that is counted begin at a time of the clock as it is set now.

        A point whose time is before its beginning, or before that of an earlier point, is refused by receivers, and is
        a fall to those who look at its value. What was counted until now is exported as of the time before.
        """
        _log.warning("the clock was set back: counters and histograms begin anew")
        last_ns, self._since_ns = self._timeline.begin_anew()
        self._export(last_ns)
        for pipeline, _ in self._pipelines:
            pipeline.store.restart(self._since_ns)

    def take_durations(self) -> list[tuple[str, float]]:
        """Return how long each export took, in seconds, by exporter; once."""
        taken, self._durations = self._durations, []
        return taken

    def snapshot(self) -> list[Point]:
        """Return every series as it stands, once where several pipelines have the same."""
        with self._lock:
            # Once where several pipelines have the same.
            found = {(p.resource, p.name, p.attributes): p for one, _ in self._pipelines for p in points(one.store)}
            return list(found.values())
