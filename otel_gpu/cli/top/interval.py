"""What happened between two looks? The same figures as differences, by process."""

from __future__ import annotations

from ...signals.metrics import Buckets
from ...signals.structs import Frozen
from .figures import Figures, ProcessFigures
from .sources import Taken

_NOTHING = Buckets()


class Interval(Frozen):
    """How things stand, and how they stood some seconds ago."""

    now: Figures
    before: Figures
    seconds: float | None
    """None where nothing is known of how they stood."""

    @classmethod
    def between(cls, before: Taken | None, now: Taken) -> Interval:
        """Return what happened from one look to the next."""
        if before is None or now.at_s <= before.at_s:
            return cls(now.figures, Figures(), None)
        return cls(now.figures, before.figures, now.at_s - before.at_s)

    def earlier(self, key: str) -> ProcessFigures:
        """Return how a process stood; one that was not there had done nothing."""
        return self.before.processes.get(key) or ProcessFigures(None, "")

    def rate(self, now: float, before: float) -> float | None:
        """Return how much was added each second. What has fallen began anew."""
        if self.seconds is None:
            return None
        return (now - before if now >= before else now) / self.seconds


def added(now: Buckets, before: Buckets | None) -> Buckets:
    """Return what a histogram got meanwhile; all of it where it began anew."""
    before = before or _NOTHING
    return now.since(before) if now.count >= before.count else now
