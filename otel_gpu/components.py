"""How is a receiver, a processor or an exporter added? By a factory: this package's own, or one that an entry point names.

    # pyproject.toml
    [project.entry-points."otel_gpu.receivers"]
    fans = "my_package:RECEIVER"

    # my_package
    RECEIVER = ReceiverFactory(FanSettings, lambda context, settings: Fans(context, settings), metrics=(SPEED,))

A configuration names it as the entry point does, `receivers: {fans: {path: /sys/class/hwmon}}`: its settings are a frozen dataclass,
and are checked key by key as all others are. It is read, routed through pipelines, watched and exported as the receivers of
this package are; its metrics stand in `python -m otel_gpu.telemetry`. What it raises is its own failure, and costs nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .needs import Check, Needs, checks_nothing, needs_nothing
from .processors import ChangesResources, Processor
from .receivers import GivesMetrics, GivesProfiles, GivesSpans, LibraryReceiver, Receiver, SelfMeasuring, Supervised
from .signals import Signal
from .signals.metrics import (
    Attributes,
    Buckets,
    Instrument,
    Measurement,
    MetricSpec,
    Resource,
    SelfReading,
    Value,
    attributes,
)
from .signals.profiles import Frame, FrameKind, Profile, ProfileBuilder, ProfileType
from .signals.spans import Link, Span, SpanContext, SpanKind, SpanSpec, SpanStatus
from .signals.telemetry import AttributeSpec
from .supervision import Health
from .variables import Variables

if TYPE_CHECKING:
    from .discovery.processes import ProcessTable
    from .process.parsers import Parsers

__all__ = [
    "AttributeSpec",
    "Attributes",
    "Buckets",
    "ChangesResources",
    "Check",
    "Context",
    "ExporterContext",
    "ExporterFactory",
    "Frame",
    "FrameKind",
    "GivesMetrics",
    "GivesProfiles",
    "GivesSpans",
    "Health",
    "Instrument",
    "LibraryReceiver",
    "Link",
    "Measurement",
    "MetricSpec",
    "Needs",
    "Processor",
    "ProcessorContext",
    "ProcessorFactory",
    "Profile",
    "ProfileBuilder",
    "ProfileType",
    "Receiver",
    "ReceiverFactory",
    "Resource",
    "SelfMeasuring",
    "SelfReading",
    "Signal",
    "Span",
    "SpanContext",
    "SpanKind",
    "SpanSpec",
    "SpanStatus",
    "Supervised",
    "Value",
    "Variables",
    "Written",
    "attributes",
]


@dataclass(frozen=True, slots=True)
class Context:
    """What a receiver shares with the others of its agent."""

    host: Resource
    """What every series of this host carries."""
    agent: Resource
    """The agent itself, as its own series carry it."""
    observed: Callable[[], Iterable[Resource]]
    """The observed processes that run, as their series carry them: `process.pid`, `service.name`, `container.id`, …"""
    processes: ProcessTable
    """The same, with all that is known of them."""
    parsers: Parsers
    """Children without rights, in which what comes from other processes is read."""
    pids: tuple[int, ...]
    """The only processes that are observed; empty for all."""
    table_share: float
    """Which part of their usual size tables in the kernel are to have."""
    types: frozenset[str]
    """Of all receivers that the configuration uses."""
    receiver: Callable[[str, object | None], Any]
    """Another receiver by its type, for what both share; with settings, where the configuration has none, it is made with these."""
    complete: Callable[[Processor], None]
    """Has what every receiver measured pass a processor, before any pipeline."""
    readings: Callable[[], Iterable[SelfReading]]
    """What all parts of the agent measure of themselves,"""
    health: Callable[[], Iterable[Health]]
    """and how they are."""


@dataclass(frozen=True, slots=True)
class ReceiverFactory:
    """A type of receivers."""

    settings: type
    """A frozen dataclass whose fields have defaults, or must be set."""
    create: Callable[[Context, Any], Receiver]
    """From the context and the settings; OtelGpuError where that cannot be."""
    metrics: tuple[MetricSpec, ...] = ()
    """All that it may measure."""
    attributes: tuple[AttributeSpec, ...] = ()
    """Those attributes of its metrics and spans that are its own."""
    why_one: str | None = None
    """Why there can be only one of it, in a few words; None: there may be several."""
    signals: tuple[Signal, ...] = ("metrics",)
    """What it gives: metrics by `collect`, traces by `spans`, profiles by `profiles`."""
    spans: tuple[SpanSpec, ...] = ()
    """All spans that it may give."""
    places_probes: bool = False
    """Whether it loads programs into the kernel, which takes rights, descriptors and memory."""
    needs: Callable[[Any], Needs] = needs_nothing
    """What it needs of the host with these settings."""
    checks: Callable[[], Iterable[Check]] = checks_nothing
    """Looks whether the host has what it observes, for `otel-gpu doctor`."""
    reads_last: bool = False
    """Whether it is read when all others have been: what it measures is the agent."""


@dataclass(frozen=True, slots=True)
class ProcessorContext:
    """What a processor is told of where it stands."""

    name: str
    """Its id in the configuration."""
    signal: Signal
    """Of its pipeline."""
    host: Resource
    """What every series of this host carries."""
    observed: Callable[[], Iterable[Resource]]
    """The observed processes that run, as their series carry them."""


def kept_none(_settings: object) -> int:
    """Say that a processor has no part in what kernels are called."""
    return 0


@dataclass(frozen=True, slots=True)
class ProcessorFactory:
    """A type of processors. Every pipeline has its own."""

    settings: type
    create: Callable[[ProcessorContext, Any], Processor]
    """From the context and the settings; OtelGpuError where that cannot be."""
    signals: tuple[Signal, ...] = ("metrics",)
    """In pipelines of which it may stand."""
    needs: Callable[[Any], Needs] = needs_nothing
    """What it needs of the host with these settings."""
    kernels_kept: Callable[[Any], int] = kept_none
    """How many kernels of a process keep their names with these settings: there is to be room for their series."""


@dataclass(frozen=True, slots=True)
class ExporterContext:
    """What an exporter is told of where it stands."""

    name: str
    """Its id in the configuration."""
    signals: frozenset[Signal]
    """Of the pipelines that it stands in."""


@dataclass(frozen=True, slots=True)
class Written:
    """How the settings of an exporter stand in a configuration, and what stands beside it."""

    keys: frozenset[str]
    """Those that are there; others have their defaults."""
    where: str
    """How an error names the place: `agent.yaml: exporters.otlp`."""
    variables: Variables
    """The environment."""


@dataclass(frozen=True, slots=True)
class ExporterFactory:
    """A type of exporters: objects with a method of `otel_gpu.exporters.Exporter`, or exporters of the SDK."""

    settings: type
    """A frozen dataclass: the keys of the configuration."""
    create: Callable[[ExporterContext, Any], object]
    """From the context and the settings; OtelGpuError where that cannot be. One is made of what several signals share."""
    signals: tuple[Signal, ...] = ("metrics",)
    """What it can carry."""
    resolve: Callable[[Any, Written], Mapping[Signal, object]] | None = None
    """What `create` gets for each signal, of settings as they are written; None: these."""
    check: Callable[[Any, Signal], None] | None = None
    """Raises ConfigError for what `create` cannot be given for a signal."""
    needs: Callable[[Any, Signal], Needs] = needs_nothing
    """What it needs of the host with the settings of a signal."""
