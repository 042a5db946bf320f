"""Hands spans to exporters as an agent does."""

from __future__ import annotations

from collections.abc import Iterable

from otel_gpu.exporters import PipelineExporter
from otel_gpu.exporters.fan_out import FanOut
from otel_gpu.exporters.fan_out import spans_to as _spans_to
from otel_gpu.runtime.supervision import Component
from otel_gpu.signals.spans import Span


def spans_to(exporters: Iterable[PipelineExporter], component: Component | None = None) -> FanOut[Span]:
    """Return what hands spans to exporters; what fails is noted as the component's."""
    return _spans_to(exporters, component or Component("traces"))
