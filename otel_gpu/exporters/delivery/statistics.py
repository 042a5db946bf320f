"""What became of the points that an exporter was given? Counted here, and said once when it changes."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import NamedTuple

import msgspec

from ...signals import SIGNALS, Signal
from ...signals.structs import Frozen

OTHER_ERROR = "_OTHER"
"""What OpenTelemetry's conventions call a failure of which nothing more is known."""
REJECTED, QUEUE_FULL, SHUTDOWN = "rejected", "queue_full", "shutdown"
"""And what they call points that the receiver turned down, that found no place to wait, and that were too late."""
_MAX_NOTED = 16_384
"""Requests between two readings: what waits in all queues has long been dropped by then."""


class ExporterStats(Frozen):
    """An exporter's record since it started; "points" are data points, spans or samples.

    Every point handed over ends in exactly one of `sent_points`, `failed_points`, `rejected_points` and
    `dropped_points`, or is still among the `queued_points`.
    """

    sent_points: int = 0
    """Accepted by the receiver."""
    failed_points: int = 0
    """Given up: refused for good, or retried for too long."""
    rejected_points: int = 0
    """Turned down by the receiver in a partial success."""
    dropped_points: int = 0
    """Never tried: the queue was full, or the exporter was closed first."""
    queued_points: int = 0
    queued_requests: int = 0
    requests: int = 0
    """Requests that were answered, with success or without."""
    retries: int = 0
    last_error: str | None = None
    """Why the last attempt failed; None once one has succeeded again."""

    def __add__(self, other: ExporterStats) -> ExporterStats:
        """Add two records up; the error is the right one's, else the left one's."""
        summed = {
            f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "last_error"
        }
        return ExporterStats(**summed, last_error=other.last_error or self.last_error)


class Outcomes(Frozen):
    """What became of points, as OpenTelemetry's conventions count it."""

    exported: Mapping[tuple[Signal, str], int] = msgspec.field(default_factory=dict)
    """How many are done with, by their signal and why they failed: an empty text where they did not."""
    inflight: Mapping[Signal, int] = msgspec.field(default_factory=dict)
    """How many wait, or are under way."""

    @classmethod
    def of(cls, stats: ExporterStats, takes: Collection[Signal]) -> Outcomes:
        """Return what is known of an exporter that counts no signal by itself: all is of the first that it takes."""
        signal = next((one for one in SIGNALS if one in takes), SIGNALS[0])
        counts = {
            "": stats.sent_points,
            OTHER_ERROR: stats.failed_points,
            REJECTED: stats.rejected_points,
            QUEUE_FULL: stats.dropped_points,
        }
        return cls({(signal, error): n for error, n in counts.items() if n}, {signal: stats.queued_points})

    def __add__(self, other: Outcomes) -> Outcomes:
        """Add two records up."""
        return Outcomes(
            Counter(self.exported) + Counter(other.exported), Counter(self.inflight) + Counter(other.inflight)
        )


class Operation(NamedTuple):
    """A request that is done with."""

    signal: Signal
    duration_s: float
    """From the beginning of its first try to the end of its last one."""
    error_type: str = ""
    """Why it failed; empty where it did not."""


class Tally:
    """Counts for one destination and logs when it goes down or comes back. Safe to use from any thread."""

    def __init__(self, what: str, logger: logging.Logger) -> None:
        self._what = what
        self._logger = logger
        self._lock = threading.Lock()
        self._stats = ExporterStats()
        self._exported: Counter[tuple[Signal, str]] = Counter()
        self._operations: deque[Operation] = deque(maxlen=_MAX_NOTED)
        self._complaint: str | None = None

    def snapshot(self) -> ExporterStats:
        return self._stats

    def exported(self) -> dict[tuple[Signal, str], int]:
        """Return how many points are done with, by their signal and why they failed."""
        with self._lock:
            return dict(self._exported)

    def note(self, operation: Operation) -> None:
        """Note a request that is done with."""
        self._operations.append(operation)

    def take_operations(self) -> Iterator[Operation]:
        """Yield what was noted since the last call."""
        for _ in range(len(self._operations)):
            yield self._operations.popleft()

    def add(
        self,
        signal: Signal,
        *,
        sent: int = 0,
        failed: int = 0,
        rejected: int = 0,
        dropped: int = 0,
        requests: int = 0,
        retries: int = 0,
        error_type: str = OTHER_ERROR,
    ) -> None:
        """Count what happened to points of a signal; `error_type` says why they failed or were dropped."""
        more = ExporterStats(sent, failed, rejected, dropped, 0, 0, requests, retries)
        with self._lock:
            self._stats = self._stats + more
            for why, points in (("", sent), (error_type, failed + dropped), (REJECTED, rejected)):
                if points:
                    self._exported[signal, why] += points

    def up(self) -> None:
        """Note that an attempt succeeded."""
        with self._lock:
            recovered = self._stats.last_error is not None
            self._stats = self._with_error(None)
        if recovered:
            self._logger.info("%s works again", self._what)

    def down(self, reason: str) -> None:
        """Note that an attempt failed."""
        with self._lock:
            was_up = self._stats.last_error is None
            self._stats = self._with_error(reason)
        if was_up:
            self._logger.warning("%s fails: %s", self._what, reason)

    def complain(self, message: str) -> None:
        """Log what is wrong with data that was accepted, unless it was the same the last time."""
        with self._lock:
            news = message != self._complaint
            self._complaint = message
        if news:
            self._logger.warning("%s: %s", self._what, message)

    def _with_error(self, reason: str | None) -> ExporterStats:
        values = {f.name: getattr(self._stats, f.name) for f in fields(ExporterStats)}
        return ExporterStats(**{**values, "last_error": reason})
