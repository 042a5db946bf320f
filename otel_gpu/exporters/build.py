"""Which exporters does the configuration ask for? Each is imported only when it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .. import registry
from ..errors import ConfigError
from ..supervision import Component, Health
from . import ExporterStats
from .objects import ObjectExporter, wrapped, wrapped_one
from .settings import ConsoleSettings, FileSettings, OtlpSettings, SdkSettings, Signal

if TYPE_CHECKING:
    from ..config.model import Config
    from . import MetricsExporter, SignalExporter

_GRACE_S = 1.0
"""How much longer an exporter is waited for, to count what it could not deliver."""


@dataclass(frozen=True, slots=True)
class Exporters:
    """The exporters of each signal's pipelines, by id. One that several signals use in the same way is there once."""

    metrics: Mapping[str, MetricsExporter]
    profiles: Mapping[str, SignalExporter | ObjectExporter]
    objects: Sequence[MetricsExporter] = ()
    """What hands on to objects of the program that runs the agent: beside those of every pipeline."""

    def _all(self) -> list[MetricsExporter | SignalExporter | ObjectExporter]:
        everything: list[MetricsExporter | SignalExporter | ObjectExporter] = [
            *self.metrics.values(),
            *self.profiles.values(),
            *self.objects,
        ]
        return list({id(exporter): exporter for exporter in everything}.values())

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
        deadline = time.monotonic() + timeout_s
        closing = []
        for exporter in self._all():
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


def build(config: Config, objects: Sequence[object] = ()) -> Exporters:
    """Make the exporters of every pipeline, and what hands on to objects; ConfigError where one cannot be."""
    metrics: dict[str, MetricsExporter] = {
        component: _metrics_exporter(config.exporter(component, "metrics"), component)
        for component in _wanted(config, "metrics")
    }
    profiles: dict[str, SignalExporter | ObjectExporter] = {}
    for component in _wanted(config, "profiles"):
        settings = config.exporter(component, "profiles")
        shared = metrics.get(component) if settings == config.exporter(component, "metrics") else None
        if shared is None and not isinstance(settings, OtlpSettings | FileSettings):
            shared = _metrics_exporter(settings, component)
        profiles[component] = _signal_exporter(settings, component, shared)
    return Exporters(metrics, profiles, wrapped(objects))


def _end(exporter: MetricsExporter | SignalExporter | ObjectExporter, timeout_s: float) -> None:
    with Component(f"end of {exporter.name}"):
        exporter.shutdown(timeout_s)


def _wanted(config: Config, signal: Signal) -> list[str]:
    return list(
        dict.fromkeys(
            component
            for pipeline_id, pipeline in config.pipelines.items()
            if pipeline_id.partition("/")[0] == signal
            for component in pipeline.exporters
        )
    )


def _signal_exporter(settings: object, name: str, shared: MetricsExporter | None) -> SignalExporter | ObjectExporter:
    match settings:
        case OtlpSettings():
            from .otlp import OtlpExporter

            return shared if isinstance(shared, OtlpExporter) else OtlpExporter(settings, name)
        case FileSettings():
            from .file import FileExporter

            return shared if isinstance(shared, FileExporter) else FileExporter(settings, name)
    if isinstance(shared, ObjectExporter):
        return shared
    raise ConfigError(f"exporters.{name}: exporters of this type carry metrics only; use otlp or file")


def _metrics_exporter(settings: object, name: str) -> MetricsExporter:
    match settings:
        case OtlpSettings():
            from .otlp import OtlpExporter

            return OtlpExporter(settings, name)
        case FileSettings():
            from .file import FileExporter

            return FileExporter(settings, name)
        case ConsoleSettings():
            from .console import ConsoleExporter

            return ConsoleExporter(settings, name)
        case SdkSettings():
            from .sdk import SdkExporter

            return SdkExporter.installed(settings, name)
    if (factory := registry.find("exporters", name.partition("/")[0])) is not None:
        return wrapped_one(factory.create(settings), name, is_ours=True)
    raise ConfigError(f"exporters.{name}: nothing is known about exporters of this type")
