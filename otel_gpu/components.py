"""How does another package add a receiver, a processor or an exporter? By a factory, which its entry points name.

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

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .processors import Processor
from .receivers import Receiver
from .signals.metrics import (
    Attributes,
    Buckets,
    Instrument,
    Measurement,
    MetricSpec,
    Resource,
    Value,
    attributes,
)
from .signals.telemetry import AttributeSpec

__all__ = [
    "AttributeSpec",
    "Attributes",
    "Buckets",
    "Context",
    "ExporterFactory",
    "Instrument",
    "Measurement",
    "MetricSpec",
    "Processor",
    "ProcessorFactory",
    "Receiver",
    "ReceiverFactory",
    "Resource",
    "Value",
    "attributes",
]


@dataclass(frozen=True, slots=True)
class Context:
    """What a receiver shares with the others of its agent."""

    host: Resource
    """What every series of this host carries."""
    observed: Callable[[], Iterable[Resource]]
    """The observed processes that run, as their series carry them: `process.pid`, `service.name`, `container.id`, …"""


@dataclass(frozen=True, slots=True)
class ReceiverFactory:
    """A type of receivers, of metrics."""

    settings: type
    """A frozen dataclass whose fields have defaults, or must be set."""
    create: Callable[[Context, Any], Receiver]
    """From the context and the settings; OtelGpuError where that cannot be."""
    metrics: tuple[MetricSpec, ...] = ()
    """All that it may measure."""
    attributes: tuple[AttributeSpec, ...] = ()
    """Those attributes of its metrics that are its own."""
    why_one: str | None = None
    """Why there can be only one of it, in a few words; None: there may be several."""


@dataclass(frozen=True, slots=True)
class ProcessorFactory:
    """A type of processors, of metrics. Every pipeline has its own."""

    settings: type
    create: Callable[[Any], Processor]


@dataclass(frozen=True, slots=True)
class ExporterFactory:
    """A type of exporters: objects with a method of `otel_gpu.exporters.Exporter`, or metric exporters of the SDK."""

    settings: type
    create: Callable[[Any], object]
    takes_profiles: bool = False
