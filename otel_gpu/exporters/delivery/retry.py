"""When is a failed request tried again, and how long is the wait? The rules of the OTLP specification."""

from __future__ import annotations

import email.utils
import random
import time
from collections.abc import Iterator

from .settings import RetrySettings

RETRYABLE_HTTP = frozenset({429, 502, 503, 504})
RETRYABLE_GRPC = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"})
"""RESOURCE_EXHAUSTED is one of them only when the server says by RetryInfo that it can recover."""

_JITTER = random.Random()  # noqa: S311 - it only spreads load
"""Of its own: a program that has this library in it may count on what it has seeded."""


def waits(settings: RetrySettings, rng: random.Random | None = None) -> Iterator[float]:
    """Yield the seconds to wait before each further try: growing, and jittered so that clients spread."""
    draw = (rng or _JITTER).uniform
    spread = settings.randomization_factor
    interval = settings.initial_interval_s
    while True:
        yield interval * draw(1 - spread, 1 + spread)
        interval = min(interval * settings.multiplier, settings.max_interval_s)


def retry_after_s(header: str | None, now_s: float | None = None) -> float | None:
    """Read an HTTP Retry-After header, in seconds or a date; None when it says nothing usable."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text[:10])
    try:
        at = email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, at - (time.time() if now_s is None else now_s))
