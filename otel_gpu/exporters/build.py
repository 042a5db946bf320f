"""Which exporters does the configuration ask for? Each is imported only when it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from .. import registry
from ..errors import ConfigError
from ..signals import Signal
from ..supervision import Component, Health
from . import ExporterStats, MetricsExporter, SignalExporter, SpansExporter
from .console.settings import ConsoleSettings
from .file.settings import FileSettings
from .objects import ObjectExporter, wrapped, wrapped_one
from .otlp.settings import OtlpSettings
from .sdk.settings import SdkSettings
from .span_sink import SpanSink

if TYPE_CHECKING:
    from ..config.model import Config

_GRACE_S = 1.0
"""How much longer an exporter is waited for, to count what it could not deliver."""

AnyExporter: TypeAlias = MetricsExporter | SignalExporter | SpansExporter


@dataclass(frozen=True, slots=True)
class Exporters:
    """The exporters of each signal's pipelines, by id. One that several signals use in the same way is there once."""

    metrics: Mapping[str, MetricsExporter]
    profiles: Mapping[str, SignalExporter | ObjectExporter]
    objects: Sequence[MetricsExporter] = ()
    """What hands on to objects of the program that runs the agent: beside those of every pipeline."""
    traces: Mapping[str, SignalExporter | SpansExporter] = field(default_factory=dict)
    objects_for_spans: Sequence[SpansExporter] = ()
    """As `objects`, and partly the same."""
    _sinks: list[SpanSink] = field(default_factory=list)

    def span_sink(self, ids: Iterable[str] | None = None) -> SpanSink:
        """Return what hands spans to these exporters of traces, all of them unless it is said which, and to objects."""
        chosen = self.traces.values() if ids is None else [self.traces[component] for component in ids]
        self._sinks.append(sink := SpanSink([*chosen, *self.objects_for_spans]))
        return sink

    def _all(self) -> list[AnyExporter]:
        everything: list[AnyExporter] = [
            *self.metrics.values(),
            *self.profiles.values(),
            *self.traces.values(),
            *self.objects,
            *self.objects_for_spans,
        ]
        return list({id(exporter): exporter for exporter in everything}.values())

    def stats(self) -> dict[str, ExporterStats]:
        """Return what became of the points, by the exporter's id."""
        found: dict[str, ExporterStats] = {}
        for exporter in self._all():
            found[exporter.name] = found.get(exporter.name, ExporterStats()) + exporter.stats()
        return found

    def health(self) -> list[Health]:
        """Say how the threads are that deliver, by the exporter's id, and whether spans are handed to them."""
        return [sink.health() for sink in self._sinks] + [
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
        metrics = {c: made.exporter_of_metrics(c) for c in _wanted(config, "metrics")}
        profiles = {c: made.exporter_of_profiles(c) for c in _wanted(config, "profiles")}
        traces = {c: made.exporter_of_traces(c) for c in _wanted(config, "traces")}
        others = wrapped(objects)
    except BaseException:
        _end_all(made.exporters(), 0)
        raise
    for_metrics = [one for one in others if isinstance(one, MetricsExporter)]
    for_spans = [one for one in others if isinstance(one, SpansExporter) and one.takes_spans]
    return Exporters(metrics, profiles, for_metrics, traces, for_spans)


def _wanted(config: Config, signal: Signal) -> list[str]:
    return list(
        dict.fromkeys(component for pipeline in config.pipelines_of(signal) for component in pipeline.exporters)
    )


class _Made:
    """Makes exporters, one for each id and settings: what differs by signal is another exporter of the same name."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._made: list[tuple[str, object, AnyExporter]] = []

    def exporters(self) -> list[AnyExporter]:
        return [exporter for _, _, exporter in self._made]

    def exporter_of_metrics(self, component: str) -> MetricsExporter:
        exporter = self._exporter(component, "metrics")
        if isinstance(exporter, MetricsExporter):
            return exporter
        raise ConfigError(f"exporters.{component}: it takes no metrics; leave it out of pipelines of metrics")

    def exporter_of_profiles(self, component: str) -> SignalExporter | ObjectExporter:
        exporter = self._exporter(component, "profiles")
        if isinstance(exporter, SignalExporter | ObjectExporter):
            return exporter
        raise ConfigError(f"exporters.{component}: exporters of this type take no profiles; use otlp or file")

    def exporter_of_traces(self, component: str) -> SignalExporter | SpansExporter:
        exporter = self._exporter(component, "traces")
        if isinstance(exporter, SpansExporter) and exporter.takes_spans:
            return exporter
        if isinstance(exporter, SignalExporter) and not isinstance(exporter, SpansExporter):
            return exporter
        raise ConfigError(f"exporters.{component}: it takes no spans; use otlp, file, console or sdk")

    def _exporter(self, component: str, signal: Signal) -> AnyExporter:
        settings = self._config.exporter(component, signal)
        for known, its_settings, exporter in self._made:
            # What the SDK has are exporters of one signal each.
            if known == component and its_settings == settings and not isinstance(settings, SdkSettings):
                return exporter
        exporter = _made_of(settings, component, signal)
        self._made.append((component, settings, exporter))
        return exporter


def _made_of(settings: object, name: str, signal: Signal) -> AnyExporter:
    match settings:
        case OtlpSettings():
            from .otlp.exporter import OtlpExporter

            return OtlpExporter(settings, name)
        case FileSettings():
            from .file.exporter import FileExporter

            return FileExporter(settings, name)
        case ConsoleSettings():
            from .console.exporter import ConsoleExporter

            return ConsoleExporter(settings, name)
        case SdkSettings() if signal == "traces":
            from .sdk.spans import SdkSpanExporter

            return SdkSpanExporter.installed(settings, name)
        case SdkSettings():
            from .sdk.metrics import SdkExporter

            return SdkExporter.installed(settings, name)
    if (factory := registry.find("exporters", name.partition("/")[0])) is not None:
        return wrapped_one(factory.create(settings), name, is_ours=True)
    raise ConfigError(f"exporters.{name}: nothing is known about exporters of this type")


def _end_all(exporters: Sequence[AnyExporter], timeout_s: float) -> None:
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


def _end(exporter: AnyExporter, timeout_s: float) -> None:
    with Component(f"end of {exporter.name}"):
        exporter.shutdown(timeout_s)
