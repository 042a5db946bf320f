"""What was asked for? One frozen `Config`, made once from the file, the OTEL_* variables and the command line.

The command line goes before the file, the file before the variables. The OTEL_EXPORTER_OTLP_* variables
apply to exporters whose `endpoint` the file leaves out, so that credentials go where they were meant to go.
Sections that the file leaves out have their defaults; with neither file nor variables, every GPU process
is observed and metrics go to localhost:4317.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ..components import Written
from ..components.registry import DEFAULTS, GIVING
from ..components.values import nearest
from ..components.variables import Variables
from ..errors import ConfigError
from ..signals import SIGNALS, Signal
from .factories import exporter_factory, exporter_settings, processor_factory, receiver_factory
from .settings import (
    DEFAULT_INTERVAL_S,
    Discovery,
    ExporterSettings,
    HealthCheckSettings,
    LogLevel,
    Pipeline,
    ProcessorSettings,
    ReceiverSettings,
    check_id,
    component_type,
)

_SIGNALS: dict[str, Signal] = {signal: signal for signal in SIGNALS}
_ADD = "add an otlp or a file exporter"


def _default_receivers() -> Mapping[str, ReceiverSettings]:
    return {component: receiver_factory(component).settings() for component in DEFAULTS["receivers"]}


def _default_processors() -> Mapping[str, ProcessorSettings]:
    return {component: processor_factory(component).settings() for component in DEFAULTS["processors"]}


def _default_exporters() -> Mapping[str, ExporterSettings]:
    found = {}
    for component in DEFAULTS["exporters"]:
        written = Written(frozenset(), f"exporters.{component}", Variables({}))
        by_signal = exporter_settings(component, exporter_factory(component).settings(), written)
        found[component] = next(iter(by_signal.values()))
    return found


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that can be set. `Config()` is what an empty file and empty variables give."""

    receivers: Mapping[str, ReceiverSettings] = field(default_factory=_default_receivers)
    """By id: `type` or `type/name`, as in the Collector."""
    processors: Mapping[str, ProcessorSettings] = field(default_factory=_default_processors)
    exporters: Mapping[str, ExporterSettings] = field(default_factory=_default_exporters)
    pipelines: Mapping[str, Pipeline] = field(default_factory=dict)
    """By id, `signal` or `signal/name`; empty means one for each signal that a declared receiver gives."""
    extensions: Mapping[str, HealthCheckSettings] = field(default_factory=dict)
    """By id: those that `service.extensions` names."""
    discovery: Discovery = field(default_factory=Discovery)
    interval_s: float = DEFAULT_INTERVAL_S
    """From one export to the next."""
    duration_s: float | None = None
    """Stop after this long; None runs until told to stop."""
    log_level: LogLevel = "info"
    resource_attributes: tuple[tuple[str, str], ...] = ()
    """OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME: whose they are, the agent's; of what is observed they say nothing."""
    disabled: bool = False
    """OTEL_SDK_DISABLED: nothing is to be observed or sent."""
    signal_exporters: Mapping[tuple[str, str], ExporterSettings] = field(default_factory=dict)
    """By id and signal: where a signal's own variables say otherwise than `exporters`."""
    usual_exporters: Mapping[Signal, tuple[str, ...]] = field(default_factory=dict)
    """By signal: where it goes when no pipeline says so; else to all that can carry it."""
    notices: tuple[str, ...] = field(default=(), compare=False)
    """What of the variables has no effect, to be said at the start."""

    def __post_init__(self) -> None:
        if not self.pipelines:
            object.__setattr__(self, "pipelines", self._everything())
        for name in (
            "receivers",
            "processors",
            "exporters",
            "pipelines",
            "extensions",
            "signal_exporters",
            "usual_exporters",
        ):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        for group in ("receivers", "processors", "exporters", "extensions", "pipelines"):
            for component in getattr(self, group):
                check_id(f"service.{group}" if group == "pipelines" else group, component)
        for pipeline_id, pipeline in self.pipelines.items():
            self._check(pipeline_id, pipeline)
        self._check_receivers()
        for component in self.exporters:
            self._check_exporter(component)

    def _everything(self) -> dict[str, Pipeline]:
        givers = {signal: self._givers(signal) for signal in SIGNALS}
        given = [signal for signal in SIGNALS if givers[signal]] or ["metrics"]
        return {s: Pipeline(givers[s], self._processing(s), self.exporters_of(s)) for s in given}

    def _givers(self, signal: Signal) -> tuple[str, ...]:
        return tuple(component for component in self.receivers if signal in receiver_factory(component).signals)

    def _processing(self, signal: Signal) -> tuple[str, ...]:
        return tuple(component for component in self.processors if signal in processor_factory(component).signals)

    def _check_receivers(self) -> None:
        """As in the Collector, what no pipeline names is not started, and may stand there."""
        used: dict[str, str] = {}
        for component in dict.fromkeys(r for pipeline in self.pipelines.values() for r in pipeline.receivers):
            kind = component_type(component)
            why_one = receiver_factory(component).why_one
            if kind in used and why_one:
                raise ConfigError(
                    f"receivers.{component}: there can be one receiver of this type, and {used[kind]} is one: {why_one}; "
                    f"name {used[kind]} in all pipelines that need it"
                )
            used[kind] = component

    def carries(self, component: str, signal: Signal) -> bool:
        """Say whether an exporter can carry a signal."""
        return signal in exporter_factory(component).signals

    def exporters_of(self, signal: Signal) -> tuple[str, ...]:
        """Return the exporters that a signal goes to when nothing is said of it; ConfigError when none of them can carry it."""
        if signal in self.usual_exporters:
            return self.usual_exporters[signal]
        able = tuple(component for component in self.exporters if self.carries(component, signal))
        if self.exporters and not able:
            raise ConfigError(f"{signal} leave by OTLP or in files, not by {', '.join(self.exporters)}; {_ADD}")
        return able

    def _check(self, pipeline_id: str, pipeline: Pipeline) -> None:
        signal = component_type(pipeline_id)
        if signal not in SIGNALS:
            raise ConfigError(f"service.pipelines.{pipeline_id}: no such signal; {nearest(signal, SIGNALS)}")
        for kind in ("receivers", "processors", "exporters"):
            named: tuple[str, ...] = getattr(pipeline, kind)
            for position, component in enumerate(named):
                declared = getattr(self, kind)
                if component not in declared:
                    raise ConfigError(
                        f"service.pipelines.{pipeline_id}.{kind}: {component!r} is not declared under {kind}; "
                        f"{nearest(component, declared)}"
                    )
                if component in named[:position]:
                    raise ConfigError(
                        f"service.pipelines.{pipeline_id}.{kind}: {component!r} stands here twice; name it once"
                    )
        self._check_carried(f"service.pipelines.{pipeline_id}", pipeline, _SIGNALS[signal])

    def _check_carried(self, where: str, pipeline: Pipeline, signal: Signal) -> None:
        """Every component of a pipeline gives, processes or takes its signal."""
        for component in pipeline.receivers:
            gives = receiver_factory(component).signals
            if signal not in gives:
                raise ConfigError(
                    f"{where}.receivers: {component} gives no {signal}, but {' and '.join(gives)}; name it in a pipeline of "
                    "those"
                )
        for component in pipeline.processors:
            processes = processor_factory(component).signals
            if signal not in processes:
                raise ConfigError(f"{where}.processors: {component} processes {' and '.join(processes)}; leave it out")
        for component in pipeline.exporters:
            if not self.carries(component, signal):
                raise ConfigError(f"{where}.exporters: {component} takes no {signal}; {_ADD}")

    def _check_exporter(self, component: str) -> None:
        factory = exporter_factory(component)
        if (check := factory.check) is None:
            return
        try:
            for signal in factory.signals:
                check(self.exporter(component, signal), signal)
        except ConfigError as e:
            raise ConfigError(f"exporters.{component}: {e}") from None

    @property
    def signals(self) -> set[str]:
        """Return what is exported."""
        return {component_type(pipeline) for pipeline in self.pipelines}

    @property
    def needs_pods(self) -> bool:
        """Whether any part that is used wants to know pods."""
        discovery = self.discovery
        processors = {component for pipeline in self.pipelines.values() for component in pipeline.processors}
        return (
            any(rule.needs_pods for rule in (*discovery.include, *discovery.exclude))
            or any(receiver_factory(component).needs_pods for component in self.used_receivers)
            or any(processor_factory(component).needs_pods for component in processors)
        )

    @property
    def used_receivers(self) -> dict[str, ReceiverSettings]:
        """Return the receivers that stand in a pipeline, by id; as in the Collector, others are not started."""
        used = {component for pipeline in self.pipelines.values() for component in pipeline.receivers}
        return {component: settings for component, settings in self.receivers.items() if component in used}

    def pipelines_of(self, signal: Signal) -> list[Pipeline]:
        """Return the pipelines of a signal."""
        return [pipeline for name, pipeline in self.pipelines.items() if component_type(name) == signal]

    def exporter(self, component: str, signal: str) -> ExporterSettings:
        """Return the settings with which an exporter sends a signal."""
        return self.signal_exporters.get((component, signal), self.exporters[component])

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        pids: tuple[int, ...] = (),
        output: str | None = None,
        duration_s: float | None = None,
        profiles: bool = False,
        traces: bool = False,
        children: bool = True,
    ) -> Config:
        """Read the file, if any, and the variables; the other arguments go before both. ConfigError where wrong.

        Without `children` the agent observes none that chosen processes start.
        """
        from .loading import load

        config = load(cls, path, os.environ if environ is None else environ, pids, output, duration_s)
        if not children:
            config = replace(config, discovery=replace(config.discovery, children=False))
        if profiles:
            config = config.with_signal("profiles")
        return config.with_signal("traces") if traces else config

    def with_signal(self, signal: Signal) -> Config:
        """Return a configuration that exports a signal too, through all processors and exporters declared that take it.

        It is given by the receivers that are declared for it, else by our own.
        """
        if signal in self.signals:
            return self
        receivers, pipelines = dict(self.receivers), dict(self.pipelines)
        giving = self._givers(signal)
        if not giving:
            added = GIVING[signal]
            factory = receiver_factory(added)
            receivers[added], giving = factory.settings(), (added,)
            for pipeline_id, pipeline in pipelines.items():
                # What it measures besides belongs to what is measured.
                if component_type(pipeline_id) in factory.signals:
                    pipelines[pipeline_id] = replace(pipeline, receivers=(*pipeline.receivers, added))
        pipelines[signal] = Pipeline(giving, self._processing(signal), self.exporters_of(signal))
        return replace(self, receivers=receivers, pipelines=pipelines)
