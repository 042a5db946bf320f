"""How is what a configuration asks for observed, until it is told to stop?"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..components.processors import Processor
from ..components.receivers import GivesMetrics, GivesProfiles, GivesSpans, SelfMeasuring
from ..config.factories import processor_factory
from ..config.model import Config
from ..config.settings import Pipeline as PipelineSettings
from ..discovery.descendants import descendants
from ..discovery.procfs import is_alive
from ..discovery.selection import Selection
from ..errors import OtelGpuError
from ..exporters import PipelineExporter
from ..exporters.fan_out import FanOut, profiles_to, spans_to
from ..exporters.objects import check
from ..runtime import heap
from ..runtime.supervision import Component, Health, Worker
from ..signals import Signal, self_metrics
from ..signals.metrics import AttributeValue, Point, SelfReading, added_up
from .awaited import AwaitedProcesses
from .batches import Batches, BatchPipeline, Item, Reader
from .durations import Durations
from .ending import Ending
from .exporting import Exporters, build
from .graph import Graph, Pipeline
from .lateness import Lateness
from .observation import Observation
from .series_limits import SeriesLimits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..discovery.processes import Process
    from .health_check import HealthCheck

_log = logging.getLogger(__name__)
STOP_S = 8.0
"""How long a stop takes at the most, unless it is said otherwise: a service has ten seconds, and may be on a busy host."""
_RELEASE_S = 1.5
"""The time for letting go of everything, of `STOP_S`; of a shorter stop in proportion."""
_WRITE_S = 1.0
"""The time for writing and sending, likewise."""
_HURRIED_S = 1.0
"""How long an interval that is being read when the agent is told to stop still waits for names."""
_TRIM_S = 10.0
"""How often memory is given back at the most: it takes a few milliseconds."""
_LOOK_S = 1.0
"""How often chosen processes are looked for."""
_READER: dict[str, AttributeValue] = {
    "otel.component.name": "periodic_metric_reader/0",
    "otel.component.type": "periodic_metric_reader",
}
"""What collects, as the conventions for SDKs call it."""
_EXIT_COLLECT_S = 0.25
"""How soon after a process has ended its last counts are read, at the most often."""


class Agent:
    """Observes GPU programs until it is stopped. A context manager; also for use inside other programs."""

    def __init__(self, config: Config | None = None, exporters: Sequence[object] = ()) -> None:
        """Take the configuration; nothing is touched before `start`.

        `exporters` are objects that get what is observed beside the configured ones: OpenTelemetry SDK exporters of
        metrics or spans, or anything with a method of `otel_gpu.exporters.Exporter`. Whoever made them ends them.
        """
        self._config = config or Config()
        self._objects = tuple(exporters)
        check(self._objects)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Forget all of a run before: an agent may be started again."""
        config = self._config
        self._pids = () if config.discovery.everything else config.discovery.pids
        self._observation = Observation(
            config.used_receivers,
            pids=self._pids,
            follows_children=config.discovery.children,
            resource_attributes=dict(config.resource_attributes),
            shared_attributes=config.discovery.resource_attributes,
            selection=Selection(config.discovery.include, config.discovery.exclude),
            readings=self._readings,
            health=self.health,
            kubernetes=config.discovery.kubernetes if config.needs_pods else None,
        )
        self._awaited = AwaitedProcesses(self._pids, self._observation.processes.known)
        self._exporters: Exporters | None = None
        self._graph: Graph | None = None
        self._durations = Durations()
        self._measuring: list[SelfMeasuring] = []
        self._lateness = Lateness(partial(self._durations.note, self_metrics.ATTACH_DELAY))
        self._health_checks: list[HealthCheck] = []
        self._is_observing = False
        self._delivered_nothing = False
        self._exited = threading.Event()
        self._finished = threading.Event()
        self._next_export = math.inf
        self._trim_at = 0.0
        self._collector = Worker("collect", self._follow)

    def __enter__(self) -> Agent:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Attach to what runs and begin to follow the rest; OtelGpuError where that cannot be, or where it runs already."""
        if self._is_observing:
            raise OtelGpuError("this agent is started already; stop it first, or make another one")
        if self._finished.is_set():
            self._begin_anew()
        for notice in self._config.notices:
            _log.warning("%s", notice)
        if self._config.disabled:
            _log.info("OTEL_SDK_DISABLED is set: nothing is observed")
            self._finished.set()
            return
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        self._start_health_checks()
        self._observation.open()
        self._observation.watch(self._on_exit, self._lateness.attached)
        # The exporters come last: their libraries take longer to load than everything above.
        exporters = self._exporters = build(self._config, self._objects)
        self._graph = self._build(exporters)
        self._next_export = time.monotonic() + self._config.interval_s
        self._collector.start()
        self._is_observing = True
        chosen = "1 process" if len(self._pids) == 1 else f"{len(self._pids)} processes"
        _log.info("observing %s", chosen if self._pids else "every GPU process of this host")
        if older := self._lateness.older:
            which = "1 of them was" if older == 1 else f"{older} of them were"
            _log.info("%s there before: what was called until now is in no count", which)

    def _build(self, exporters: Exporters) -> Graph:
        """Make the pipelines of every signal."""
        receivers = self._observation.receivers
        metrics = {name: r for name, r in receivers.items() if isinstance(r, GivesMetrics)}
        batches: list[Batches[Any]] = []
        profiling = {name: r.profiles for name, r in receivers.items() if isinstance(r, GivesProfiles)}
        if profiling:
            batches.append(self._batches("profiles", profiling, exporters, profiles_to, lambda p: p.profiles))
        tracing = {name: r.spans for name, r in receivers.items() if isinstance(r, GivesSpans)}
        if tracing:
            batches.append(self._batches("traces", tracing, exporters, spans_to, lambda p: p.spans))
        return Graph(
            metrics,
            [self._metrics_pipeline(p, exporters) for p in self._config.pipelines_of("metrics")],
            batches=batches,
            completed_by=self._observation.completed_by,
            is_selected=self._observation.processes.identities.is_selected,
        )

    def _metrics_pipeline(self, asked: PipelineSettings, exporters: Exporters) -> Pipeline:
        kept = (processor_factory(p).kernels_kept(self._config.processors[p]) for p in asked.processors)
        return Pipeline(
            asked.receivers,
            self._processors(asked, "metrics"),
            exporters.of("metrics", asked.exporters),
            SeriesLimits.for_kernels(max(kept, default=0)),
        )

    def _batches(
        self,
        signal: Signal,
        readers: Mapping[str, Reader[Item]],
        exporters: Exporters,
        to: Callable[[Sequence[PipelineExporter], Component], FanOut[Item]],
        method: Callable[[Processor], Callable[[list[Item]], list[Item]]],
    ) -> Batches[Item]:
        """Return all pipelines of spans, or of profiles."""
        component = Component(signal)
        pipelines = [
            BatchPipeline(
                asked.receivers,
                [self._selected, *(method(processor) for processor in self._processors(asked, signal))],
                to(exporters.of(signal, asked.exporters), component).export,
            )
            for asked in self._config.pipelines_of(signal)
        ]
        return Batches(component, readers, pipelines)

    def _processors(self, asked: PipelineSettings, signal: Signal) -> list[Processor]:
        made = [
            processor_factory(component).create(
                self._observation.processor_context(component, signal), self._config.processors[component]
            )
            for component in asked.processors
        ]
        self._measuring += [processor for processor in made if isinstance(processor, SelfMeasuring)]
        return made

    def _selected(self, items: list[Any]) -> list[Any]:
        """Return the spans, or the profiles, of whom the operator wants to hear."""
        is_selected = self._observation.processes.identities.is_selected
        return [item for item in items if is_selected(item.resource)]

    def _start_health_checks(self) -> None:
        if not self._config.extensions:
            return
        from .health_check import HealthCheck, Report

        def report() -> Report:
            return Report(not self._collector.is_stuck, self._is_observing, self.health())

        for settings in self._config.extensions.values():
            self._health_checks.append(HealthCheck(settings, report))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to observe, or `stop`; False when the time (in seconds) is up first."""
        return self._finished.wait(timeout)

    def end_wait(self) -> None:
        """Have `wait` return, in whatever thread it is called."""
        self._finished.set()

    def is_ready(self) -> bool:
        """Say whether what chosen processes do first can be taken in whole."""
        return self._observation.is_ready()

    def without_gpu(self) -> list[int]:
        """Return the chosen processes that have mapped no library of a GPU's driver as yet, nor has a descendant that is followed."""
        follows = self._observation.followed is not None
        known = self._observation.processes.known
        return [
            pid
            for pid in self._pids
            if is_alive(pid) and not known(pid) and not (follows and any(map(known, descendants([pid]))))
        ]

    @property
    def delivered_nothing(self) -> bool:
        """Whether there was something to deliver, and nobody took any of it; known once it is stopped."""
        return self._delivered_nothing

    def health(self) -> list[Health]:
        """Say of every part how it is."""
        parts = self._observation, self._graph, self._exporters
        workers = self._collector, *(check.worker for check in self._health_checks)
        return [w.health() for w in workers] + [h for part in parts if part is not None for h in part.health()]

    def stop(self, timeout_s: float = STOP_S) -> bool:
        """Export the last interval and release everything, within the time given whatever hangs; idempotent.

        False when something of the last interval may be missing; the log says what hung.
        """
        self._finished.set()
        self._is_observing = False
        ending = Ending(timeout_s)
        scale = min(timeout_s / STOP_S, 1.0)
        release_s, write_s = _RELEASE_S * scale, _WRITE_S * scale
        observation = self._observation
        # On a busy host what comes next needs the time that new programs would take.
        observation.look_no_more(_HURRIED_S * scale)
        ending.attempt_within("the reading of an interval", self._collector.stop)
        observation.stop_watching(ending)
        if (graph := self._graph) is not None:
            ending.attempt_within("names of kernels", lambda limit_s: observation.settle(limit_s / 2))
            # It takes long where many programs have just ended, and nothing else matters as much.
            ending.attempt_within(
                "the reading of the last interval", lambda _: self._collect(graph), keep_s=write_s + release_s
            )
            ending.attempt("the writing of the last interval", graph.export)
            ending.attempt("the last spans and profiles", partial(graph.export_batches, last=True))
        if self._exporters is not None:
            ending.attempt_within("export", self._exporters.shutdown, keep_s=release_s)
            stats = list(self._exporters.stats().values())
            lost = sum(s.failed_points + s.rejected_points + s.dropped_points + s.queued_points for s in stats)
            self._delivered_nothing = lost > 0 and not any(s.sent_points for s in stats)
        observation.release(ending)
        while self._health_checks:
            ending.release("the health check is", self._health_checks.pop().close)
        self._graph = self._exporters = None
        ending.tell()
        return ending.is_complete

    def snapshot(self) -> list[Point]:
        """Return every series as it stands now, without any exporter."""
        if (graph := self._graph) is None:
            return []
        self._collect(graph)
        return graph.snapshot()

    def _on_exit(self, _process: Process) -> None:
        self._exited.set()
        self._collector.wake()

    def _follow(self) -> float:
        """Read and export what is due, and return when to look again."""
        graph = self._graph
        assert graph is not None
        if self._exited.is_set():
            self._exited.clear()
            self._collect(graph)
            self._check_finished()
            self._collector.pause(_EXIT_COLLECT_S)
        elif self._pids:
            self._check_finished()
        if time.monotonic() >= self._next_export:
            self._next_export = max(self._next_export + self._config.interval_s, time.monotonic())
            self._observation.processes.check_alive()
            self._collect(graph)
            # Else what follows the last interval is soon written with it.
            if not self._finished.is_set():
                graph.export()
                graph.export_batches()
            self._check_finished()
        # Of a process that has yet to become a GPU process nobody tells that it has ended.
        look_s = _LOOK_S if self._pids else math.inf
        return min(max(self._next_export - time.monotonic(), 0), look_s)

    def _collect(self, graph: Graph) -> None:
        """Read everything; processes that had ended before are then done with."""
        processes = self._observation.processes
        ended = processes.ended()
        began = time.perf_counter()
        if not graph.collect([p.resource for p in ended]):
            # What could not be read may be theirs: they are done with when it was.
            ended = []
        self._durations.note(self_metrics.COLLECTION_DURATION, time.perf_counter() - began, **_READER)
        for name, seconds in graph.take_durations():
            self._durations.note(self_metrics.HANDOVER_DURATION, seconds, **{"otel.component.name": name})
        for process in ended:
            processes.forget(process)
        # Much of what was there at the start, or of those who have ended, is freed by now.
        if (ended or not self._trim_at) and time.monotonic() >= self._trim_at:
            self._trim_at = time.monotonic() + _TRIM_S
            heap.trim()

    def _check_finished(self) -> None:
        if self._pids and not self._awaited.find(self._observation.followed):
            self._finished.set()

    def _readings(self) -> Iterator[SelfReading]:
        """Yield what the agent measures beside its receivers: its exporters, how long it took, and what processors do."""
        if self._exporters is not None:
            yield from self._exporters.readings()
        yield from self._durations.readings()
        yield from self._lateness.readings()
        yield from added_up(reading for processor in self._measuring for reading in processor.readings())
