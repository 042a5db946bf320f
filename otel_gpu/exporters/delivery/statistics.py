"""What became of the points that an exporter was given? Counted here, and said once when it changes."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class ExporterStats:
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


class Tally:
    """Counts for one destination and logs when it goes down or comes back. Safe to use from any thread."""

    def __init__(self, what: str, logger: logging.Logger) -> None:
        self._what = what
        self._logger = logger
        self._lock = threading.Lock()
        self._stats = ExporterStats()
        self._complaint: str | None = None

    def snapshot(self) -> ExporterStats:
        return self._stats

    def add(
        self,
        *,
        sent: int = 0,
        failed: int = 0,
        rejected: int = 0,
        dropped: int = 0,
        requests: int = 0,
        retries: int = 0,
    ) -> None:
        """Count what happened; every argument is added to its statistic."""
        more = ExporterStats(sent, failed, rejected, dropped, 0, 0, requests, retries)
        with self._lock:
            self._stats = self._stats + more

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
