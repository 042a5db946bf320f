"""Which request stands for a value of a histogram? So a slow bucket leads to a trace."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct


class Exemplar(Struct, frozen=True, gc=False):
    """One value that was measured, and the span that it was measured of."""

    value: int | float
    """In the metric's unit."""
    time_ns: int
    """When it was measured, in nanoseconds since the epoch."""
    trace_id: bytes
    span_id: bytes
    """Of a span that is sent: 16 and 8 bytes."""


Exemplars = Mapping[int | None, Exemplar]
"""The last one of each bucket, by the bucket's index; None is that of zeros."""
NO_EXEMPLARS: Exemplars = MappingProxyType({})
