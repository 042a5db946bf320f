"""How long did things take? Noted as they happen, by any thread, and read once an interval."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from ..signals.metrics import AttributeValue, Buckets, MetricSpec, SelfReading

_MAX_NOTED = 65_536
"""Between two readings; as many programs may have started as there are pids."""


class Durations:
    """What a part of the agent measures of its own times."""

    def __init__(self) -> None:
        self._noted: deque[SelfReading] = deque(maxlen=_MAX_NOTED)

    def note(self, metric: MetricSpec, seconds: float, **attrs: AttributeValue) -> None:
        """Note how long something took; from any thread."""
        self._noted.append(SelfReading(metric, one_duration(seconds), attrs))

    def readings(self) -> Iterator[SelfReading]:
        """Yield what was noted since the last call."""
        for _ in range(len(self._noted)):
            yield self._noted.popleft()


def one_duration(seconds: float) -> Buckets:
    """Return a histogram of one value, in OTLP's scale-0 buckets."""
    if seconds <= 0:
        return Buckets(zero_count=1)
    mantissa, exponent = math.frexp(seconds)
    return Buckets({exponent - (2 if mantissa == 0.5 else 1): 1}, seconds)
