"""In which encoding are requests written: protobuf or, over HTTP, JSON?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ...runtime.supervision import Component
from ..delivery.payload import Encoded, Payload
from .settings import OtlpSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...signals.metrics import ResourceSeries
    from ...signals.profiles import Profile
    from ...signals.spans import Span
    from ..batch import Batch


class EncodesSeries(Protocol):
    """Makes requests of a store of series, again and again."""

    def encode(self, store: Iterable[ResourceSeries], now_ns: int) -> list[Payload[bytes]]: ...

    def commit(self) -> None: ...


class Encoding(Protocol):
    """Makes requests of each signal."""

    def metrics(self) -> EncodesSeries:
        """Return what encodes the series of one pipeline."""

    def spans(self, batch: Batch[Span]) -> Encoded: ...

    def profiles(self, batch: Batch[Profile]) -> Encoded: ...


class ProtobufEncoding:
    """Requests as gRPC and OTLP/HTTP have them unless told otherwise."""

    def __init__(self, settings: OtlpSettings) -> None:
        self._settings = settings

    def metrics(self) -> EncodesSeries:
        from ..wire.metrics_protobuf import MetricsEncoder

        return MetricsEncoder(
            self._settings.temporality,
            max_bytes=self._settings.max_request_bytes,
            histograms=self._settings.histograms,
            marks_ended=True,
        )

    def spans(self, batch: Batch[Span]) -> Encoded:
        return batch.requests(self._settings.max_request_bytes)

    def profiles(self, batch: Batch[Profile]) -> Encoded:
        return batch.requests(self._settings.max_request_bytes)


class JsonEncoding:
    """Requests of OTLP/JSON."""

    def __init__(self, settings: OtlpSettings) -> None:
        from ..wire.spans_json import span_line_encoder

        self._settings = settings
        self._spans = span_line_encoder(settings.max_request_bytes, Component("spans as OTLP/JSON").note)

    def metrics(self) -> EncodesSeries:
        from ..wire.metrics_json import JsonMetricsEncoder

        return JsonMetricsEncoder(
            self._settings.temporality,
            self._settings.max_request_bytes,
            self._settings.histograms,
            marks_ended=True,
        )

    def spans(self, batch: Batch[Span]) -> Encoded:
        return self._spans.encode(batch.items)

    def profiles(self, batch: Batch[Profile]) -> Encoded:
        from ..wire.request_json import json_payload

        encoded = batch.requests(self._settings.max_request_bytes)
        return Encoded([json_payload("profiles", payload) for payload in encoded.payloads], encoded.lost)


def encoding(settings: OtlpSettings) -> Encoding:
    """Return the one that a protocol has."""
    return JsonEncoding(settings) if settings.protocol == "http/json" else ProtobufEncoding(settings)
