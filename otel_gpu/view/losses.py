"""What was not kept, and why? Numbers by reason, which the page shows under health."""

from __future__ import annotations

import threading
from collections import Counter
from enum import Enum

from ..signals.structs import Frozen


class Reason(str, Enum):
    """Why something was not kept; the value is what the page says."""

    MALFORMED = "requests that were no OTLP"
    TOO_LARGE = "requests that were too large"
    NOT_UNDERSTOOD = "requests in a form that is not understood"
    NOT_ALLOWED = "requests without the token, or of another site"
    BUSY = "requests that came while others were being read"
    SERIES = "points without room for their series"
    RESOURCES = "points, spans and samples without room for their resource"
    OLD = "points and profiles older than what is kept"
    REPEATED = "points that were there already, or out of order"
    POINT_KIND = "points of a kind that is not drawn"
    SPANS = "spans given up for newer ones"
    SPAN_IDS = "spans without ids"
    LINKS = "links of spans beyond the bound"
    ATTRIBUTES = "attributes beyond the bound"
    CUT = "names and values that were cut"
    STACKS = "samples whose stacks had no room"
    SAMPLES = "samples given up for newer ones"


GIVING_WAY = frozenset({Reason.SPANS, Reason.SAMPLES})
"""What is as it should be where there is more than room for: the newest is kept."""


class Loss(Frozen):
    """How often something was not kept."""

    reason: Reason
    count: int


class Losses:
    """Counts; used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Reason] = Counter()

    def add(self, reason: Reason, count: int = 1) -> None:
        """Count what was not kept."""
        if count:
            with self._lock:
                self._counts[reason] += count

    def all(self) -> list[Loss]:
        """Return what was counted, in the order of the reasons."""
        with self._lock:
            return [Loss(reason, self._counts[reason]) for reason in Reason if self._counts[reason]]
