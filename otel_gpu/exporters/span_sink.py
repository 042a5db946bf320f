"""How do spans reach the exporters of traces? An interval's worth at a time, encoded once for all that take requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..signals.spans import Span
from ..supervision import Component, Health
from . import SignalExporter, SpansExporter
from .settings import MAX_REQUEST_BYTES
from .wire.span_requests import Encoded


class SpanSink:
    """Hands spans to exporters. Used by one thread at a time.

    Each span is then delivered by every exporter, or counted by it as lost (`ExporterStats`). What one of them raises is
    noted, and costs the others nothing.
    """

    def __init__(self, exporters: Iterable[SignalExporter | SpansExporter]) -> None:
        """`exporters` may name one several times: it gets each span once."""
        unique = {id(exporter): exporter for exporter in exporters}.values()
        self._direct = [e for e in unique if isinstance(e, SpansExporter)]
        self._by_request = [e for e in unique if not isinstance(e, SpansExporter)]
        self._component = Component("export traces")
        if self._by_request:
            from .wire.spans_protobuf import span_encoder

            limit = min([e.max_request_bytes for e in self._by_request], default=MAX_REQUEST_BYTES)
            self._encoder = span_encoder(limit, self._component.note)

    def health(self) -> Health:
        """Say how often spans could not be handed on."""
        return self._component.health()

    def export(self, spans: Sequence[Span]) -> None:
        """Hand spans to every exporter; it never raises."""
        if not spans:
            return
        spans = tuple(spans)
        for one in self._direct:
            try:
                one.export_spans(spans)
            except Exception as e:  # noqa: BLE001 - one exporter must not cost the others
                self._component.note(e)
        if self._by_request:
            self._export_requests(spans)

    def _export_requests(self, spans: Sequence[Span]) -> None:
        try:
            encoded = self._encoder.encode(spans)
        except Exception as e:  # noqa: BLE001 - what others have been handed must not be handed to them again
            self._component.note(e)
            encoded = Encoded([], len(spans))
        for one in self._by_request:
            try:
                if encoded.lost:
                    one.count_failed("traces", encoded.lost)
                for payload in encoded.payloads:
                    one.submit("traces", payload)
            except Exception as e:  # noqa: BLE001 - one exporter must not cost the others
                self._component.note(e)
