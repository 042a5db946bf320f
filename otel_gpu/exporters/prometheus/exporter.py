"""How do metrics reach a Prometheus that scrapes? Each interval's are kept, and written for whoever asks for them.

In Prometheus's text format, or as OpenMetrics, which has exemplars, for who accepts that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from prometheus_client import exposition, openmetrics

from ...runtime.supervision import Worker
from ...signals import Signal
from .. import ExporterStats, PipelineExporter
from ..delivery.statistics import Operation, Outcomes, Tally
from ..http_listener import Answer, HttpListener, Request
from .families import Families, merged
from .names import COLLECTED
from .settings import PrometheusSettings
from .targets import Claim, Targets

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
        self._with_resources = settings.resource_to_telemetry_conversion.enabled
        self._lock = threading.Lock()
        self._kept: WeakKeyDictionary[SeriesStore, Families] = WeakKeyDictionary()
        """By pipeline."""
        self._targets = Targets()
        self._claims: WeakKeyDictionary[SeriesStore, set[Claim]] = WeakKeyDictionary()
        """Who was there at the last interval, by pipeline."""
        self._collected_ns = 0
        self._bodies: dict[bool, bytes] = {}
        """What was answered since then, in text and as OpenMetrics: who asks often is told the same, at no cost."""
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

    def export_metrics(self, store: SeriesStore, now_ns: int) -> None:
        families = Families()
        self._claims[store] = families.add(store, self._targets, with_resources=self._with_resources)
        self._targets.keep(claim for claims in self._claims.values() for claim in claims)
        with self._lock:
            self._kept[store] = families
            self._collected_ns = now_ns
            self._bodies = {}
        if families.skipped:
            names = ", ".join(sorted(families.skipped))
            self._tally.complain(f"left out, for another metric has that name in Prometheus: {names}")

    def shutdown(self, timeout_s: float) -> None:
        self._listener.close(timeout_s)

    def stats(self) -> ExporterStats:
        return self._tally.snapshot()

    def outcomes(self) -> Outcomes:
        return Outcomes(self._tally.exported())

    def take_operations(self) -> Iterator[Operation]:
        return self._tally.take_operations()

    def component_type(self, signal: Signal) -> str:  # noqa: ARG002 - it takes metrics alone
        return "prometheus_http_text_metric_exporter"

    def workers(self) -> list[Worker]:
        return [self._listener.worker]

    def _answer(self, request: Request) -> Answer:
        if request.path != self._path:
            return Answer(404)
        began = time.monotonic()
        with self._lock:
            kept, collected_ns, bodies = list(self._kept.values()), self._collected_ns, self._bodies
        headers = ((COLLECTED, str(collected_ns)),)
        is_openmetrics = _OPENMETRICS in request.accept
        body = bodies.get(is_openmetrics)
        if body is None:
            write = openmetrics.exposition.generate_latest if is_openmetrics else exposition.generate_latest
            body = bodies[is_openmetrics] = write(merged(kept))
        self._tally.note(Operation("metrics", time.monotonic() - began))
        self._tally.add("metrics", sent=sum(one.points for one in kept), requests=1)
        if is_openmetrics:
            return Answer(200, body, f"{_OPENMETRICS}; version=1.0.0; charset=utf-8", headers)
        return Answer(200, body, "text/plain; version=0.0.4; charset=utf-8", headers)
