"""What is one request?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Body = TypeVar("Body")


@dataclass(frozen=True, slots=True)
class Payload(Generic[Body]):
    """One request, ready to be sent: made once, however often it is tried."""

    body: Body
    points: int
    """Data points, spans or samples within, for the statistics."""
    size_bytes: int
