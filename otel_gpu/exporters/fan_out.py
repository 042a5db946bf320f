"""How do all exporters of a pipeline get its spans, or its profiles? A batch at a time, each as it needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from ..runtime.supervision import Component
from ..signals.profiles import Profile
from ..signals.spans import Span
from . import PipelineExporter
from .batch import Batch, Encoder
from .delivery.payload import Encoded, Payload
from .wire.span_requests import SpanRequests

Item = TypeVar("Item")


class FanOut(Generic[Item]):
    """Hands spans, or profiles, to exporters. Used by one thread at a time.

    Each is then delivered by every exporter, or counted by it as lost (`ExporterStats`). What one of them raises is noted as
    the component's failure, and costs the others nothing.
    """

    def __init__(
        self, exporters: Iterable[Callable[[Batch[Item]], None]], encoder: Encoder[Item], component: Component
    ) -> None:
        """`exporters` are the methods that take the signal."""
        self._exporters = tuple(exporters)
        self._encoder = encoder
        self._component = component

    def export(self, items: Sequence[Item]) -> None:
        """Hand all to every exporter; it never raises."""
        if not items:
            return
        batch = Batch(tuple(items), self._encoder, self._component)
        for export in self._exporters:
            with self._component:
                export(batch)


def spans_to(exporters: Iterable[PipelineExporter], component: Component) -> FanOut[Span]:
    """Return what hands spans to exporters."""
    return FanOut([exporter.export_spans for exporter in exporters], _SpanEncoder(component), component)


def profiles_to(exporters: Iterable[PipelineExporter], component: Component) -> FanOut[Profile]:
    """Return what hands profiles to exporters."""
    return FanOut([exporter.export_profiles for exporter in exporters], _ProfileEncoder(component), component)


class _SpanEncoder:
    def __init__(self, component: Component) -> None:
        self._component = component
        self._by_limit: dict[int, SpanRequests] = {}

    def encode(self, items: Sequence[Span], max_bytes: int) -> Encoded:
        if (requests := self._by_limit.get(max_bytes)) is None:
            # Where nobody asks for requests nothing needs protobuf.
            from .wire.spans_protobuf import span_encoder

            requests = self._by_limit[max_bytes] = span_encoder(max_bytes, self._component.note)
        return requests.encode(items)

    def points(self, items: Sequence[Span]) -> int:
        return len(items)


class _ProfileEncoder:
    def __init__(self, component: Component) -> None:
        self._component = component

    def encode(self, items: Sequence[Profile], max_bytes: int) -> Encoded:
        from .wire.profiles_protobuf import profile_payloads

        try:
            payloads = profile_payloads(items, max_bytes)
        except Exception as e:  # noqa: BLE001 - one profile that cannot be encoded must not cost the others
            self._component.note(e)
            payloads = self._one_by_one(items, max_bytes)
        return Encoded(payloads, self.points(items) - sum(payload.points for payload in payloads))

    def points(self, items: Sequence[Profile]) -> int:
        return sum(len(profile.samples) for profile in items)

    def _one_by_one(self, profiles: Sequence[Profile], max_bytes: int) -> list[Payload[bytes]]:
        from .wire.profiles_protobuf import profile_payloads

        payloads: list[Payload[bytes]] = []
        for profile in profiles:
            with self._component:
                payloads += profile_payloads([profile], max_bytes)
        return payloads
