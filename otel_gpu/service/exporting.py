"""Which exporters does the configuration ask for? Each is imported only when it is."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..components import ExporterContext
from ..config.factories import exporter_factory
from ..config.model import Config
from ..errors import ConfigError
from ..exporters import ExporterStats, PipelineExporter
from ..exporters.objects import wrapped, wrapped_one
from ..runtime.supervision import Component, Health
from ..signals import SIGNALS, Signal
from ..signals.metrics import Attributes, AttributeValue, MetricSpec, SelfReading, attributes
from ..signals.self_metrics import EXPORTED, INFLIGHT, OPERATION_DURATION
from ..signals.structs import Frozen
from .durations import one_duration

_GRACE_S = 1.0
"""How much longer an exporter is waited for, to count what it could not deliver."""


class Exporters(Frozen):
    """The exporters of each signal's pipelines, by id. One that several signals use in the same way is there once."""

    by_signal: Mapping[Signal, Mapping[str, PipelineExporter]]
    objects: Sequence[PipelineExporter] = ()
    """What hands on to objects of the program that runs the agent: beside those of every pipeline."""

    def of(self, signal: Signal, ids: Iterable[str]) -> list[PipelineExporter]:
        """Return the exporters of a pipeline, each once: those that it names, and the program's objects."""
        named = [self.by_signal[signal][component] for component in ids]
        return _unique([*named, *(one for one in self.objects if signal in one.takes)])

    def _all(self) -> list[PipelineExporter]:
        return _unique([*(one for by_id in self.by_signal.values() for one in by_id.values()), *self.objects])

    def readings(self) -> Iterator[SelfReading]:
        """Yield what became of the points, and how long that took, by OpenTelemetry's conventions for SDKs."""
        totals: Counter[tuple[MetricSpec, Attributes]] = Counter()
        for exporter in self._all():
            outcomes = exporter.outcomes()
            for signal in self._signals(exporter):
                who = attributes(_named(exporter, signal))
                totals[EXPORTED[signal], who] += outcomes.exported.get((signal, ""), 0)
                totals[INFLIGHT[signal], who] += outcomes.inflight.get(signal, 0)
            for (signal, why), points in outcomes.exported.items():
                if why:
                    totals[EXPORTED[signal], attributes({**_named(exporter, signal), "error.type": why})] += points
            for operation in exporter.take_operations():
                about = {
                    **_named(exporter, operation.signal),
                    **({"error.type": why} if (why := operation.error_type) else {}),
                }
                yield SelfReading(OPERATION_DURATION, one_duration(operation.duration_s), about)
        for (metric, attrs), value in totals.items():
            yield SelfReading(metric, value, dict(attrs))

    def _signals(self, exporter: PipelineExporter) -> list[Signal]:
        """Return the signals for which an exporter is used."""
        if any(exporter is one for one in self.objects):
            return [signal for signal in SIGNALS if signal in exporter.takes]
        return [signal for signal in SIGNALS if any(exporter is one for one in self.by_signal[signal].values())]

    def stats(self) -> dict[str, ExporterStats]:
        """Return what became of the points, by the exporter's id."""
        found: dict[str, ExporterStats] = {}
        for exporter in self._all():
            found[exporter.name] = found.get(exporter.name, ExporterStats()) + exporter.stats()
        return found

    def health(self) -> list[Health]:
        """Say how the threads are that deliver, by the exporter's id."""
        return [
            replace(worker.health(), component=f"export {exporter.name}")
            for exporter in self._all()
            for worker in exporter.workers()
        ]

    def shutdown(self, timeout_s: float) -> None:
        """Let the exporters finish, all at once and within one deadline, whatever one of them waits for."""
        _end_all(self._all(), timeout_s)


def build(config: Config, objects: Sequence[object] = ()) -> Exporters:
    """Make the exporters of every pipeline, and what hands on to objects; ConfigError where one cannot be."""
    made = _Made(config)
    try:
        by_signal = {
            signal: {component: made.exporter(component, signal) for component in _wanted(config, signal)}
            for signal in SIGNALS
        }
        return Exporters(by_signal, wrapped(objects))
    except BaseException:
        _end_all(made.exporters(), 0)
        raise


def _wanted(config: Config, signal: Signal) -> list[str]:
    return list(
        dict.fromkeys(component for pipeline in config.pipelines_of(signal) for component in pipeline.exporters)
    )


class _Made:
    """Makes exporters, one for each id and settings: what differs by signal is another exporter of the same name."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._wanted: dict[str, list[Signal]] = {}
        for signal in SIGNALS:
            for component in _wanted(config, signal):
                self._wanted.setdefault(component, []).append(signal)
        self._made: list[tuple[str, object, PipelineExporter]] = []

    def exporters(self) -> list[PipelineExporter]:
        return [exporter for _, _, exporter in self._made]

    def exporter(self, component: str, signal: Signal) -> PipelineExporter:
        """Return the exporter of a signal; ConfigError where it does not take it."""
        exporter = self._found_or_made(component, self._config.exporter(component, signal))
        if signal not in exporter.takes:
            raise ConfigError(f"exporters.{component}: it takes no {signal}; leave it out of pipelines of {signal}")
        return exporter

    def _found_or_made(self, component: str, settings: object) -> PipelineExporter:
        for known, its_settings, exporter in self._made:
            if known == component and its_settings == settings:
                return exporter
        alike = frozenset(s for s in self._wanted[component] if self._config.exporter(component, s) == settings)
        try:
            made = exporter_factory(component).create(ExporterContext(component, alike), settings)
            exporter = wrapped_one(made, component, is_ours=True)
        except ConfigError as e:
            if str(e).startswith(f"exporters.{component}"):
                raise
            raise ConfigError(f"exporters.{component}: {e}") from e
        self._made.append((component, settings, exporter))
        return exporter


def _named(exporter: PipelineExporter, signal: Signal) -> dict[str, AttributeValue]:
    return {"otel.component.name": exporter.name, "otel.component.type": exporter.component_type(signal)}


def _unique(exporters: Iterable[PipelineExporter]) -> list[PipelineExporter]:
    return list({id(exporter): exporter for exporter in exporters}.values())


def _end_all(exporters: Sequence[PipelineExporter], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    closing = []
    for exporter in exporters:
        name = f"otel-gpu-end-{exporter.name}"
        thread = threading.Thread(target=_end, args=(exporter, timeout_s), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no room for a thread
            _end(exporter, max(deadline - time.monotonic(), 0.1))
        else:
            closing.append(thread)
    for thread in closing:
        thread.join(max(deadline + _GRACE_S - time.monotonic(), 0.1))


def _end(exporter: PipelineExporter, timeout_s: float) -> None:
    with Component(f"end of {exporter.name}"):
        exporter.shutdown(timeout_s)
