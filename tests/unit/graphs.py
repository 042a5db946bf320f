"""A graph of one pipeline, which carries all that its receivers measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from otel_gpu.components import Processor, Receiver
from otel_gpu.exporters import PipelineExporter
from otel_gpu.service.graph import Graph, Pipeline
from otel_gpu.service.series_limits import SeriesLimits
from otel_gpu.service.timeline import Timeline


def one_pipeline(
    receivers: Mapping[str, Receiver],
    processors: Sequence[Processor],
    exporters: Sequence[PipelineExporter],
    *,
    limits: SeriesLimits | None = None,
    timeline: Timeline | None = None,
) -> Graph:
    """Make it; the arguments are those of `Pipeline` and `Graph`."""
    return Graph(receivers, [Pipeline(receivers, processors, exporters, limits)], timeline=timeline)
