"""What are exporters of spans and profiles handed? A batch, which is encoded once for all that send the same requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from ..runtime.supervision import Component
from .delivery.payload import Encoded

Item = TypeVar("Item")
In_contra = TypeVar("In_contra", contravariant=True)


class Encoder(Protocol[In_contra]):
    """Makes requests of spans, or of profiles."""

    def encode(self, items: Sequence[In_contra], max_bytes: int) -> Encoded:
        """Return serialized `Export…ServiceRequest`s of at most so many bytes."""

    def points(self, items: Sequence[In_contra]) -> int:
        """Return how many spans or samples these are, for the statistics."""


class Batch(Generic[Item]):
    """Spans or profiles of one interval, as they are and as requests. Used by one thread at a time."""

    def __init__(self, items: Sequence[Item], encoder: Encoder[Item], component: Component) -> None:
        """What cannot be encoded is noted as the component's."""
        self.items = items
        self._encoder = encoder
        self._component = component
        self._encoded: dict[int, Encoded] = {}

    def requests(self, max_bytes: int) -> Encoded:
        """Return serialized requests of at most so many bytes; the same for all that ask for as many. It never raises."""
        if (encoded := self._encoded.get(max_bytes)) is None:
            try:
                encoded = self._encoder.encode(self.items, max_bytes)
            except Exception as e:  # noqa: BLE001 - every exporter counts it as lost
                self._component.note(e)
                encoded = Encoded([], self._encoder.points(self.items))
            self._encoded[max_bytes] = encoded
        return encoded
