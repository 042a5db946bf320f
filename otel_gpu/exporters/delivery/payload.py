"""What is one request, and what became of what was to be in some?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ...signals import Signal

Body = TypeVar("Body")


@dataclass(frozen=True, slots=True)
class Payload(Generic[Body]):
    """One request, ready to be sent: made once, however often it is tried."""

    body: Body
    points: int
    """Data points, spans or samples within, for the statistics."""
    size_bytes: int
    signal: Signal | None = None
    """What they are of, where a sender has several."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """What became of spans or profiles."""

    payloads: list[Payload[bytes]]
    lost: int
    """Spans or samples that are in none of the payloads: they cannot be encoded."""
