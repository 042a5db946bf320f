"""What is one request, and what became of what was to be in some?"""

from __future__ import annotations

from typing import Generic, TypeVar

from ...signals import Signal
from ...signals.structs import Frozen

Body = TypeVar("Body")


class Payload(Frozen, Generic[Body]):
    """One request, ready to be sent: made once, however often it is tried."""

    body: Body
    points: int
    """Data points, spans or samples within, for the statistics."""
    size_bytes: int
    signal: Signal | None = None
    """What they are of, where a sender has several."""


class Encoded(Frozen):
    """What became of spans or profiles."""

    payloads: list[Payload[bytes]]
    lost: int
    """Spans or samples that are in none of the payloads: they cannot be encoded."""
