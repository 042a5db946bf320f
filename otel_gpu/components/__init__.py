"""How is a receiver, a processor or an exporter added? By a factory: this package's own, or one that an entry point names.

    # pyproject.toml
    [project.entry-points."otel_gpu.receivers"]
    fans = "my_package:RECEIVER"

    # my_package
    RECEIVER = ReceiverFactory(FanSettings, lambda context, settings: Fans(context, settings), metrics=(SPEED,))

A configuration names it as the entry point does, `receivers: {fans: {path: /sys/class/hwmon}}`: its settings are a frozen dataclass,
and are checked key by key as all others are. It is read, routed through pipelines, watched and exported as the receivers of
this package are; its metrics stand in `python -m otel_gpu.service.telemetry`. What it raises is its own failure, and costs nobody else.
"""

from __future__ import annotations

from ..bpf.needs import Check, Needs
from ..runtime.supervision import Health
from ..signals import Signal
from ..signals.metrics import (
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
from ..signals.profiles import Frame, FrameKind, Profile, ProfileBuilder, ProfileType
from ..signals.spans import Link, Span, SpanContext, SpanKind, SpanSpec, SpanStatus
from ..signals.telemetry import AttributeSpec
from .exporters import ExporterContext, ExporterFactory, Written
from .processors import ChangesResources, Learning, Processor, ProcessorContext, ProcessorFactory
from .receivers import (
    Context,
    GivesMetrics,
    GivesProfiles,
    GivesSpans,
    LibraryReceiver,
    Receiver,
    ReceiverFactory,
    SelfMeasuring,
    Supervised,
)
from .variables import Variables

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
    "Learning",
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
