"""Where does what was observed go? Exporters read the series store and speak OTLP, JSON lines or a table.

A program's own have methods of `Exporter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..runtime.supervision import Worker
from ..signals import Signal
from ..signals.metrics import Point, SeriesStore
from ..signals.profiles import Profile
from ..signals.spans import Span
from .batch import Batch
from .delivery.statistics import ExporterStats, Operation, Outcomes

__all__ = [
    "Exporter",
    "ExporterStats",
    "Operation",
    "Outcomes",
    "PartlyRejected",
    "PipelineExporter",
]


class PipelineExporter:
    """What the agent asks of every exporter in a pipeline; those of other packages and programs are made one (`objects.py`).

    None of its methods waits for the network but `shutdown`, which says for how long. Each is called by one thread at a time;
    signals come from different ones. A failure is counted, and not raised.
    """

    takes: frozenset[Signal] = frozenset()
    """The signals whose methods do something."""

    def __init__(self, name: str) -> None:
        """Take the name by which its statistics go."""
        self.name = name

    def export_metrics(self, store: SeriesStore, now_ns: int) -> None:
        """Hand over the state of every series."""

    def export_spans(self, batch: Batch[Span]) -> None:
        """Hand over spans."""

    def export_profiles(self, batch: Batch[Profile]) -> None:
        """Hand over profiles."""

    def shutdown(self, timeout_s: float) -> None:
        """Finish what was handed over within the time given, and release everything."""

    def stats(self) -> ExporterStats:
        """Say what became of everything."""
        raise NotImplementedError

    def outcomes(self) -> Outcomes:
        """Say what became of the points of each signal; one that counts all of them together need not."""
        return Outcomes.of(self.stats(), self.takes)

    def take_operations(self) -> Iterable[Operation]:
        """Return the requests that are done with since the last call, where they are timed."""
        return ()

    def component_type(self, signal: Signal) -> str:  # noqa: ARG002 - those of OpenTelemetry differ by it
        """Return what kind of exporter it is, as `otel.component.type` says it."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    def workers(self) -> Sequence[Worker]:
        """Return the threads that deliver what was handed over, where there are any."""
        return ()


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
