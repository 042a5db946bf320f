"""How do metrics reach a Prometheus that scrapes? Each interval's are kept, and written for whoever asks for them.

In Prometheus's text format, or as OpenMetrics, which has exemplars, for who accepts that.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from prometheus_client import exposition, openmetrics

from ...http_listener import Answer, HttpListener, Request
from ...signals import Signal
from ...supervision import Worker
from .. import ExporterStats, PipelineExporter
from ..delivery.statistics import Tally
from .families import Families, merged
from .settings import PrometheusSettings

if TYPE_CHECKING:
    from ...signals.metrics import SeriesStore

_log = logging.getLogger(__name__)

_OPENMETRICS = "application/openmetrics-text"


class PrometheusExporter(PipelineExporter):
    """Answers scrapes with the state of every series at the last interval."""

    takes = frozenset[Signal]({"metrics"})

    def __init__(self, settings: PrometheusSettings, name: str = "prometheus") -> None:
        """Listen; OtelGpuError where that cannot be."""
        super().__init__(name)
        self._path = settings.path.rstrip("/")
        self._lock = threading.Lock()
        self._kept: WeakKeyDictionary[SeriesStore, Families] = WeakKeyDictionary()
        """By pipeline."""
        self._tally = Tally(f"metrics at {settings.endpoint}", _log)
        self._listener = HttpListener(
            "prometheus",
            settings.endpoint,
            self._answer,
            trouble="Prometheus cannot be answered",
            setting=f"exporters.{name}.endpoint",
        )
        host, port = self.address
        _log.info(
            "metrics for Prometheus are at http://%s:%d%s", f"[{host}]" if ":" in host else host, port, settings.path
        )

    @property
    def address(self) -> tuple[str, int]:
        """The address and port that it listens on."""
        return self._listener.address

    def export_metrics(self, store: SeriesStore, now_ns: int) -> None:  # noqa: ARG002 - Prometheus knows when it scrapes
        families = Families()
        families.add(store)
        with self._lock:
            self._kept[store] = families
        if families.skipped:
            names = ", ".join(sorted(families.skipped))
            self._tally.complain(f"left out, for another metric has that name in Prometheus: {names}")

    def shutdown(self, timeout_s: float) -> None:
        self._listener.close(timeout_s)

    def stats(self) -> ExporterStats:
        return self._tally.snapshot()

    def workers(self) -> list[Worker]:
        return [self._listener.worker]

    def _answer(self, request: Request) -> Answer:
        if request.path != self._path:
            return Answer(404)
        with self._lock:
            kept = list(self._kept.values())
        is_openmetrics = _OPENMETRICS in request.accept
        write = openmetrics.exposition.generate_latest if is_openmetrics else exposition.generate_latest
        body = write(merged(kept))
        self._tally.add(sent=sum(one.points for one in kept), requests=1)
        if is_openmetrics:
            return Answer(200, body, f"{_OPENMETRICS}; version=1.0.0; charset=utf-8")
        return Answer(200, body, "text/plain; version=0.0.4; charset=utf-8")
