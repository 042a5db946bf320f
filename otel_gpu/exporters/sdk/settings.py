"""What can be set of an exporter of the OpenTelemetry SDK?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SdkSettings:
    """An OpenTelemetry SDK exporter of another package, found by its entry point."""

    exporter: str
    """A name in the entry point group `opentelemetry_metrics_exporter`, or for spans `opentelemetry_traces_exporter`, such
    as `otlp_proto_http`."""
    timeout_s: float = 10.0
    queue_size: int = 10
    """Intervals that wait: of metrics all series, of spans at most 50,000 each."""
