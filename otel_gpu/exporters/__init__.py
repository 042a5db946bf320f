"""Where does what was observed go? Exporters read the series store and speak OTLP, JSON lines or a table.

An exporter is used from the one thread that owns the store; none of its methods waits for the network,
except `shutdown`, which says for how long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ..signals import Signal
from ..signals.metrics import Point, SeriesStore
from ..signals.profiles import Profile
from ..signals.spans import Span
from ..supervision import Worker
from .delivery.statistics import ExporterStats
from .payload import Payload

__all__ = [
    "Exporter",
    "ExporterStats",
    "MetricsExporter",
    "PartlyRejected",
    "Payload",
    "SignalExporter",
    "SpansExporter",
]


@runtime_checkable
class MetricsExporter(Protocol):
    """What the agent asks of every exporter of metrics."""

    @property
    def name(self) -> str: ...

    def export_metrics(self, store: SeriesStore, now_ns: int) -> None:
        """Hand over the state of every series; a failure is counted, never raised."""

    def shutdown(self, timeout_s: float) -> None:
        """Finish what was handed over within the time given, and release everything."""

    def stats(self) -> ExporterStats: ...

    def workers(self) -> Sequence[Worker]:
        """Return the threads that deliver what was handed over, where there are any."""


@runtime_checkable
class SignalExporter(Protocol):
    """What exporters of traces and profiles are handed: serialized OTLP export requests."""

    @property
    def name(self) -> str: ...

    @property
    def max_request_bytes(self) -> int:
        """How large a request may be."""

    def submit(self, signal: Signal, payload: Payload[bytes]) -> None:
        """Hand over one serialized `Export…ServiceRequest` of the signal; a failure is counted, never raised."""

    def count_failed(self, signal: Signal, points: int) -> None:
        """Count what could not be encoded, and is in no request."""

    def shutdown(self, timeout_s: float) -> None: ...

    def stats(self) -> ExporterStats: ...

    def workers(self) -> Sequence[Worker]: ...


@runtime_checkable
class SpansExporter(Protocol):
    """What exporters of traces are handed that do not take requests: the spans."""

    @property
    def name(self) -> str: ...

    @property
    def takes_spans(self) -> bool:
        """Whether it has a use for them."""

    def export_spans(self, spans: Sequence[Span]) -> None:
        """Hand over spans; a failure is counted, never raised."""

    def shutdown(self, timeout_s: float) -> None: ...

    def stats(self) -> ExporterStats: ...

    def workers(self) -> Sequence[Worker]: ...


class PartlyRejected(Exception):
    """Raised by a method of an `Exporter` that took all but some of what it was handed."""

    def __init__(self, points: int, why: str) -> None:
        """Say of how many points, samples or spans, and why."""
        super().__init__(why)
        self.points = points


class Exporter:
    """What a program makes a class of, to be handed what is observed: `Agent(exporters=[MyExporter()])`.

    Whatever has one of these methods will do, whether or not it is of this class. They are called from one thread of the
    exporter's own, in order: a slow one holds up nothing, and what it is too slow for is dropped and counted. One that
    raises costs what it was handed, and is told of in the log; `PartlyRejected` costs a part of it. Who made the exporter
    ends it.
    """

    def export_metrics(self, points: Sequence[Point]) -> None:
        """Take every series of a pipeline as it stands, once an interval, and a last time at the agent's end."""

    def export_profiles(self, profiles: Sequence[Profile]) -> None:
        """Take what was sampled in an interval, one profile for each process and type."""

    def export_spans(self, spans: Sequence[Span]) -> None:
        """Take the spans that have ended in an interval, in no particular order: a child may come before its parent."""
