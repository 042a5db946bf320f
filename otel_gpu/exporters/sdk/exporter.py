"""How do several signals reach what one installed package exports? The SDK has an exporter, of its own, for each."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator

from ...runtime.supervision import Worker
from ...signals import Signal
from ...signals.metrics import SeriesStore
from ...signals.spans import Span
from .. import ExporterStats, PipelineExporter
from ..batch import Batch
from ..delivery.statistics import Operation, Outcomes
from .metrics import SdkExporter
from .settings import SdkSettings
from .spans import SdkSpanExporter


class SdkExporters(PipelineExporter):
    """Hands metrics and spans to exporters of the SDK that have one name."""

    def __init__(self, settings: SdkSettings, name: str, signals: Collection[Signal]) -> None:
        """Find and make those of the signals, which take their settings from their environment; raises ConfigError."""
        super().__init__(name)
        self._metrics = SdkExporter.installed(settings, name) if "metrics" in signals else None
        self._spans: SdkSpanExporter | None = None
        try:
            self._spans = SdkSpanExporter.installed(settings, name) if "traces" in signals else None
        except BaseException:
            self.shutdown(0)
            raise
        self.takes = frozenset(signal for one in self._all() for signal in one.takes)

    def export_metrics(self, store: SeriesStore, now_ns: int) -> None:
        if self._metrics is not None:
            self._metrics.export_metrics(store, now_ns)

    def export_spans(self, batch: Batch[Span]) -> None:
        if self._spans is not None:
            self._spans.export_spans(batch)

    def shutdown(self, timeout_s: float) -> None:
        for one in self._all():
            one.begin_shutdown(timeout_s)
        for one in self._all():
            one.join()

    def stats(self) -> ExporterStats:
        return functools.reduce(ExporterStats.__add__, [one.stats() for one in self._all()], ExporterStats())

    def outcomes(self) -> Outcomes:
        return functools.reduce(Outcomes.__add__, [one.outcomes() for one in self._all()], Outcomes())

    def take_operations(self) -> Iterator[Operation]:
        for one in self._all():
            yield from one.take_operations()

    def workers(self) -> list[Worker]:
        return [worker for one in self._all() for worker in one.workers()]

    def _all(self) -> list[SdkExporter | SdkSpanExporter]:
        return [one for one in (self._metrics, self._spans) if one is not None]
