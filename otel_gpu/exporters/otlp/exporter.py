"""How does everything leave as OTLP? One sender per signal, so that a slow one holds up no other."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ...runtime.supervision import Worker
from ...signals import SIGNALS, Signal
from ...text import endpoint_without_credentials
from .. import ExporterStats, PipelineExporter
from ..delivery.payload import Encoded, Payload
from ..delivery.sender import Sender
from ..delivery.statistics import Operation, Outcomes
from .encodings import EncodesSeries, encoding
from .endpoint import Target, target
from .settings import OtlpSettings

if TYPE_CHECKING:
    from ...signals.metrics import SeriesStore
    from ...signals.profiles import Profile
    from ...signals.spans import Span
    from ..batch import Batch
    from ..delivery.sender import Transport

_PROTOCOLS = {"grpc": "grpc", "http/protobuf": "http", "http/json": "http_json"}
_SIGNALS: dict[Signal, str] = {"metrics": "metric", "traces": "span", "profiles": "profile"}
"""As OpenTelemetry's conventions have them in `otel.component.type`."""


class OtlpExporter(PipelineExporter):
    """Sends metrics, traces and profiles to an OTLP receiver over gRPC or HTTP."""

    takes = frozenset(SIGNALS)

    def __init__(self, settings: OtlpSettings, name: str = "otlp") -> None:
        """Check the settings; raises ConfigError. Connections are made when a signal is first sent."""
        super().__init__(name)
        self._settings = settings
        # What is wrong with an endpoint, a header or a certificate is said now, not at the first export.
        for signal in SIGNALS:
            target(settings, signal)
        self._encoding = encoding(settings)
        self._encoders: WeakKeyDictionary[SeriesStore, EncodesSeries] = WeakKeyDictionary()
        """By pipeline: what was built of the series of each is kept."""
        self._lock = threading.Lock()  # signals come from different threads
        self._senders: dict[Signal, Sender[bytes]] = {"metrics": self._sender("metrics")}

    def export_metrics(self, store: SeriesStore, now_ns: int) -> None:
        """Encode the store and queue the requests."""
        encoder = self._encoders.get(store)
        if encoder is None:
            encoder = self._encoders[store] = self._encoding.metrics()
        for payload in encoder.encode(store, now_ns):
            self.submit("metrics", payload)
        encoder.commit()  # in the queue: delivered or counted as lost from here on

    def export_spans(self, batch: Batch[Span]) -> None:
        """Queue spans."""
        self._hand_over("traces", self._encoding.spans(batch))

    def export_profiles(self, batch: Batch[Profile]) -> None:
        """Queue profiles."""
        self._hand_over("profiles", self._encoding.profiles(batch))

    def submit(self, signal: Signal, payload: Payload[bytes]) -> None:
        """Queue one serialized `Export…ServiceRequest` of the signal, in the protocol's encoding."""
        self._sender_of(signal).submit(payload)

    def shutdown(self, timeout_s: float) -> None:
        """Deliver what is queued within the time given, every signal at once."""
        senders = list(self._senders.values())
        for sender in senders:
            sender.close_after(timeout_s)
        for sender in senders:
            sender.join()

    def stats(self) -> ExporterStats:
        """Return the statistics of all signals together."""
        return functools.reduce(ExporterStats.__add__, [s.stats() for s in list(self._senders.values())])

    def outcomes(self) -> Outcomes:
        return functools.reduce(Outcomes.__add__, [s.outcomes() for s in list(self._senders.values())])

    def take_operations(self) -> Iterator[Operation]:
        for sender in list(self._senders.values()):
            yield from sender.take_operations()

    def component_type(self, signal: Signal) -> str:
        return f"otlp_{_PROTOCOLS[self._settings.protocol]}_{_SIGNALS[signal]}_exporter"

    def workers(self) -> list[Worker]:
        """Return the threads of all signals."""
        return [s.worker for s in list(self._senders.values())]

    def _hand_over(self, signal: Signal, encoded: Encoded) -> None:
        if encoded.lost:
            self._sender_of(signal).count_failed(encoded.lost)
        for payload in encoded.payloads:
            self.submit(signal, payload)

    def _sender_of(self, signal: Signal) -> Sender[bytes]:
        with self._lock:
            sender = self._senders.get(signal)
            if sender is None:
                sender = self._senders[signal] = self._sender(signal)
        return sender

    def _sender(self, signal: Signal) -> Sender[bytes]:
        settings = self._settings
        to = target(settings, signal)
        return Sender(
            f"{signal} to {endpoint_without_credentials(to.address)}",
            transport(to, settings),
            timeout_s=settings.timeout_s,
            retry=settings.retry,
            queue_size=settings.queue_size,
            signal=signal,
        )


def transport(to: Target, settings: OtlpSettings) -> Transport[bytes]:
    """Return what sends requests to a target, one after the other."""
    # Each costs 15 MB or so of memory to import: only the one that is used.
    if settings.protocol == "grpc":
        from .grpc_transport import GrpcTransport

        return GrpcTransport(to, settings)
    from .http_transport import HttpTransport

    return HttpTransport(to, settings)
