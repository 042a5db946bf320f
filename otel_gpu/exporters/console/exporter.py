"""What does a person at a terminal see? A table for each export; plain text when nobody is at the terminal."""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, TextIO
from weakref import WeakKeyDictionary

import msgspec

from ...signals import Signal, cuda, hip, self_metrics
from ...signals.metrics import Buckets, Instrument
from ...signals.quantiles import quantile
from ...signals.structs import Frozen
from ...text import one_line
from .. import ExporterStats, PipelineExporter
from ..delivery.statistics import Operation, Outcomes, Tally
from .quantities import quantity
from .spans import spans_as_text
from .terminal import write_text
from .titles import title

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ...signals.metrics import ResourceSeries, Series, SeriesStore
    from ...signals.spans import Span
    from ..batch import Batch
    from .settings import ConsoleSettings

_log = logging.getLogger(__name__)

_HEADINGS = ("metric", "attributes", "total", "per second", "count", "mean", "p50", "p99")
_ALWAYS = 4
"""The first columns that are there also when they are empty."""
_STYLES = ("cyan", "", "bold", "green", "dim", "", "dim", "")
_SAID_WHEN_ZERO = {self_metrics.COMPONENT_HEALTH.name}
_OF_THE_AGENT = {spec.name for spec in self_metrics.SPECS} - _SAID_WHEN_ZERO
"""What of it is zero says nothing: nothing was lost, nothing failed."""
_GRAPH_LAUNCHES = {cuda.GRAPH_LAUNCH_CALLS.name, hip.GRAPH_LAUNCH_CALLS.name}
_MAX_ATTRIBUTE = 60
_DEADLINE_S = 1.0
"""How long a table waits for somebody to read it; the agent waits as long."""


class Row(Frozen):
    """One series as it is shown: every cell is ready to be printed."""

    metric: str
    attributes: str
    total: str
    rate: str
    count: str = ""
    mean: str = ""
    p50: str = ""
    p99: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        return self.metric, self.attributes, self.total, self.rate, self.count, self.mean, self.p50, self.p99


class _Before(Frozen):
    """The table before."""

    totals: Mapping[Series, float] = msgspec.field(default_factory=dict)
    histograms: Mapping[Series, Buckets] = msgspec.field(default_factory=dict)
    when_ns: int = 0


class ConsoleExporter(PipelineExporter):
    """Prints the series of every process, the largest first, and their rates since the table before; and spans, one a line."""

    takes = frozenset[Signal]({"metrics", "traces"})

    def __init__(self, settings: ConsoleSettings, name: str = "console", stream: TextIO | None = None) -> None:
        super().__init__(name)
        self._rows_per_metric = settings.rows_per_metric or sys.maxsize
        self._spans_per_interval = settings.spans_per_interval or sys.maxsize
        self._stream = sys.stdout if stream is None else stream
        self._lock = threading.Lock()  # signals come from different threads
        self._tally = Tally("export to the console", _log)
        self._before: WeakKeyDictionary[SeriesStore, _Before] = WeakKeyDictionary()
        """What was printed last of each pipeline."""

    def export_metrics(self, store: SeriesStore, now_ns: int) -> None:
        """Print the tables of now."""
        points = len(store)
        before = self._before.get(store, _Before())
        tables = [(title(owner.resource), list(self._rows(owner, before, now_ns))) for owner in store if owner.series]
        series = [s for owner in store for s in owner.series.values()]
        copies = {s: s.value.copy() for s in series if isinstance(s.value, Buckets)}
        self._before[store] = _Before({s: _total(s) for s in series}, copies, now_ns)
        at = time.strftime("%H:%M:%S", time.localtime(now_ns / 1e9))
        self._print(lambda: _rich(at, tables) if self._stream.isatty() else _plain(at, tables), points, "metrics")

    def export_spans(self, batch: Batch[Span]) -> None:
        """Print spans, one a line."""
        spans = batch.items
        shown = partial(spans_as_text, spans, self._spans_per_interval)
        self._print(lambda: shown(in_color=self._stream.isatty()), len(spans), "traces")

    def stats(self) -> ExporterStats:
        return self._tally.snapshot()

    def outcomes(self) -> Outcomes:
        return Outcomes(self._tally.exported())

    def take_operations(self) -> Iterator[Operation]:
        return self._tally.take_operations()

    def _print(self, text: Callable[[], str], points: int, signal: Signal) -> None:
        began = time.monotonic()
        try:
            with self._lock:
                write_text(self._stream, text(), _DEADLINE_S)
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            why = type(error).__qualname__
            self._tally.note(Operation(signal, time.monotonic() - began, why))
            self._tally.add(signal, failed=points, requests=1, error_type=why)
            self._tally.down(getattr(error, "strerror", None) or str(error))
            return
        self._tally.note(Operation(signal, time.monotonic() - began))
        self._tally.add(signal, sent=points, requests=1)
        self._tally.up()

    def _rows(self, owner: ResourceSeries, before: _Before, now_ns: int) -> Iterator[Row]:
        told = (s for s in owner.series.values() if _total(s) or s.metric.name not in _OF_THE_AGENT)
        by_size = sorted(told, key=lambda s: (s.metric.name, -_total(s), s.attributes))
        for _, group in groupby(by_size, key=lambda s: s.metric.name):
            series = list(group)
            for one in series[: self._rows_per_metric]:
                row = self._row(one, before, now_ns)
                if one.metric is self_metrics.GRAPH_UNEXPANDED_LAUNCHES:
                    # As a share of what is known, which is what it says.
                    row = replace(row, attributes=f"{row.attributes} {_share_of_graphs(owner, _total(one))}")
                yield row
            if (more := len(series) - self._rows_per_metric) > 0:
                yield Row("", f"… {more:,} more", "", "")

    def _row(self, series: Series, before: _Before, now_ns: int) -> Row:
        metric, value = series.metric, series.value
        shown = " ".join(
            f"{one_line(key, _MAX_ATTRIBUTE)}={one_line(str(v), _MAX_ATTRIBUTE)}" for key, v in series.attributes
        )
        rate = ""
        seconds = (now_ns - before.when_ns) / 1e9
        if metric.instrument in (Instrument.COUNTER, Instrument.HISTOGRAM) and before.when_ns and seconds > 0:
            per_second = (_total(series) - before.totals.get(series, 0)) / seconds
            # Seconds each second are a share of time.
            rate = f"{per_second:.1%}" if metric.unit == "s" else quantity(per_second, metric.unit) + "/s"
        if isinstance(value, Buckets):
            before_it = before.histograms.get(series)
            recent = value.since(before_it) if before_it is not None and value.count > before_it.count else value
            figures = (
                recent.sum / recent.count if recent.count else None,
                quantile(recent, 0.5),
                quantile(recent, 0.99),
            )
            shown_figures = ("" if figure is None else quantity(figure, metric.unit) for figure in figures)
            return Row(metric.name, shown, quantity(value.sum, metric.unit), rate, f"{value.count:,}", *shown_figures)
        return Row(metric.name, shown, quantity(value, metric.unit), rate)


def _share_of_graphs(owner: ResourceSeries, unexpanded: float) -> str:
    launches = sum(_total(s) for s in owner.series.values() if s.metric.name in _GRAPH_LAUNCHES)
    return f"{unexpanded / max(launches, unexpanded, 1):.1%} of graph launches"


def _total(series: Series) -> float:
    return series.value.sum if isinstance(series.value, Buckets) else series.value


def _used(rows: list[Row]) -> list[int]:
    """Return which columns any row has something in, beside those that every table has."""
    return [i for i in range(len(_HEADINGS)) if i < _ALWAYS or any(row.cells[i] for row in rows)]


def _plain(at: str, tables: list[tuple[str, list[Row]]]) -> str:
    lines = []
    for name, rows in tables:
        used = _used(rows)
        cells = [[row[i] for i in used] for row in (_HEADINGS, *(row.cells for row in rows))]
        widths = [max(len(row[column]) for row in cells) for column in range(len(used))]
        lines.append(f"{at} {name}")
        for row in cells:
            left = [text.ljust(width) for text, width in zip(row[:2], widths[:2], strict=True)]
            right = [text.rjust(width) for text, width in zip(row[2:], widths[2:], strict=True)]
            lines.append("  " + "  ".join(left + right).rstrip())
        lines.append("")
    return "\n".join([*lines, ""]) if lines else f"{at} nothing observed yet\n"


def _rich(at: str, tables: list[tuple[str, list[Row]]]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    text = io.StringIO()
    console = Console(file=text, force_terminal=True, highlight=False)
    if not tables:
        console.print(Text(f"{at} nothing observed yet", style="dim"))
    for name, rows in tables:
        table = Table(title=Text(f"{at} {name}"), title_justify="left", title_style="bold", box=None, pad_edge=False)
        used = _used(rows)
        for heading, style in ((_HEADINGS[i], _STYLES[i]) for i in used):
            table.add_column(heading, style=style, justify="left" if heading in _HEADINGS[:2] else "right")
        for row in rows:
            table.add_row(*(Text(row.cells[i]) for i in used))  # as Text: names hold brackets, not markup
        console.print(table)
        console.print()
    return text.getvalue()
