"""Which tables show an interval? Processes, and what they do: kernels, copies, memory, waits, errors, requests, losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...exporters.console.quantities import quantity
from ...signals.metrics import Buckets
from ...signals.quantiles import quantile
from ...text import one_line
from .figures import Direction, Kernel, ProcessFigures
from .interval import Interval, added
from .table import EMPTY, Cell, Column, Row, Table

MAX_NAME = 120
_TO_GPU, _FROM_GPU = "MemcpyHostToDevice", "MemcpyDeviceToHost"
_DIRECTIONS = {
    _TO_GPU: "host to GPU",
    _FROM_GPU: "GPU to host",
    "MemcpyDeviceToDevice": "within a GPU",
    "MemcpyHostToHost": "host to host",
    "MemcpyPeer": "GPU to GPU",
    "MemcpyDefault": "unknown",
}
_WARNING, _ERROR = "yellow", "red"
_WHO = (Column("pid"), Column("process", 3, is_name=True))


def tables(interval: Interval) -> list[Table]:
    """Return all of them, those without rows too."""
    return [make(interval) for make in (_processes, *(_detail(d) for d in _DETAILS))]


def _processes(interval: Interval) -> Table:
    columns = (
        Column("pid"),
        Column("process", is_name=True),
        Column("kernels/s"),
        Column("to GPU/s", 2),
        Column("from GPU/s", 3),
        Column("memory", 1),
        Column("waits", 4),
        Column("busy", 5),
        Column("errors", 6),
        Column("requests/s", 7),
        Column("p50", 9),
        Column("p99", 8),
        Column("launches/request", 12),
        Column("lost", 11),
        Column("graph launches/s", 13),
        Column("graphs known", 9),
        Column("in all", 10),
    )
    rows = []
    for key, now in interval.now.processes.items():
        before = interval.earlier(key)
        kernels = now.launches + now.kernels_in_graphs
        done = added(now.requests, before.requests) if interval.seconds is not None else now.requests
        work = added(now.request_launches, before.request_launches)
        memory = sum(now.memory.values())
        rows.append(
            Row(
                key,
                (
                    _pid(now),
                    _name(now.service),
                    _rate(interval, kernels, before.launches + before.kernels_in_graphs),
                    _rate(interval, now.copied(_TO_GPU), before.copied(_TO_GPU), "By"),
                    _rate(interval, now.copied(_FROM_GPU), before.copied(_FROM_GPU), "By"),
                    Cell(quantity(memory, "By"), memory),
                    _share(interval.rate(now.waited_s, before.waited_s)),
                    _busy(interval, now, before),
                    _count(sum(now.errors.values()), _ERROR),
                    _rate(interval, now.requests.count, before.requests.count) if now.requests.count else EMPTY,
                    _time(quantile(done, 0.5)),
                    _time(quantile(done, 0.99)),
                    _number(work.sum / work.count) if work.count else EMPTY,
                    _count(sum(now.lost.values()), _WARNING),
                    _rate(interval, now.graph_launches, before.graph_launches) if now.graph_launches else EMPTY,
                    _known(now),
                    Cell(f"{kernels:,}", kernels),
                ),
            )
        )
    return Table("processes", columns, tuple(rows), 2)


def _kernels(interval: Interval, key: str, now: ProcessFigures) -> Iterator[tuple[Cell, ...]]:
    earlier = interval.earlier(key).kernels
    for name, kernel in now.kernels.items():
        before = earlier.get(name) or Kernel()
        grid, block = _shape(kernel.grid, before.grid), _shape(kernel.block, before.block)
        total = kernel.launches + kernel.in_graphs
        yield (
            _name(name),
            _rate(interval, kernel.launches, before.launches),
            _rate(interval, kernel.in_graphs, before.in_graphs) if kernel.in_graphs else EMPTY,
            grid,
            block,
            Cell(f"{total:,}", total),
        )


def _copies(interval: Interval, key: str, now: ProcessFigures) -> Iterator[tuple[Cell, ...]]:
    earlier = interval.earlier(key).copies
    for direction, copied in now.copies.items():
        before = earlier.get(direction) or Buckets()
        yield (
            Cell(_DIRECTIONS.get(direction.kind, one_line(direction.kind, MAX_NAME)), direction.kind),
            _host(direction),
            _rate(interval, copied.count, before.count),
            _rate(interval, copied.sum, before.sum, "By"),
            Cell(f"{copied.count:,}", copied.count),
            Cell(quantity(copied.sum, "By"), copied.sum),
        )


def _memory(_interval: Interval, _key: str, now: ProcessFigures) -> Iterator[tuple[Cell, ...]]:
    for kind, size in now.memory.items():
        yield Cell(one_line(kind, MAX_NAME), kind), Cell(quantity(size, "By"), size)
    if now.untracked is not None:
        yield Cell("not seen being allocated", "~"), Cell(quantity(now.untracked, "By"), now.untracked)


def _waits(interval: Interval, key: str, now: ProcessFigures) -> Iterator[tuple[Cell, ...]]:
    earlier = interval.earlier(key).waits
    for function, waits in now.waits.items():
        before = earlier.get(function) or Buckets()
        recent = added(waits, before) if interval.seconds is not None else waits
        yield (
            _name(function),
            _rate(interval, waits.count, before.count),
            _share(interval.rate(waits.sum, before.sum)),
            _time(recent.sum / recent.count if recent.count else None),
            _time(quantile(recent, 0.99)),
            Cell(f"{waits.count:,}", waits.count),
        )


def _errors(interval: Interval, key: str, now: ProcessFigures) -> Iterator[tuple[Cell, ...]]:
    earlier = interval.earlier(key).errors
    for (function, error), count in now.errors.items():
        yield (
            _name(function),
            Cell(one_line(error, MAX_NAME), error, _ERROR),
            _rate(interval, count, earlier.get((function, error), 0)),
            Cell(f"{count:,}", count),
        )


def _requests(interval: Interval, key: str, now: ProcessFigures) -> Iterator[tuple[Cell, ...]]:
    if not now.requests.count:
        return
    before = interval.earlier(key)
    recent = added(now.requests, before.requests) if interval.seconds is not None else now.requests
    work = (
        added(now.request_launches, before.request_launches) if interval.seconds is not None else now.request_launches
    )
    yield (
        _rate(interval, now.requests.count, before.requests.count),
        _time(recent.sum / recent.count if recent.count else None),
        _time(quantile(recent, 0.5)),
        _time(quantile(recent, 0.99)),
        _number(work.sum / work.count) if work.count else EMPTY,
        Cell(f"{now.requests.count:,}", now.requests.count),
    )


def _losses(_interval: Interval, _key: str, now: ProcessFigures) -> Iterator[tuple[Cell, ...]]:
    for event, count in now.lost.items():
        if count:
            yield _name(event.replace("_", " ")), Cell(f"{count:,}", count, _WARNING)


_Cells = Callable[[Interval, str, ProcessFigures], Iterator[tuple[Cell, ...]]]
_Detail = tuple[str, tuple[Column, ...], int, _Cells]
_DETAILS: tuple[_Detail, ...] = (
    (
        "kernels",
        (
            Column("kernel", is_name=True),
            Column("launches/s"),
            Column("in graphs/s", 2),
            Column("blocks", 4),
            Column("threads/block", 5),
            Column("in all", 1),
        ),
        1,
        _kernels,
    ),
    (
        "copies",
        (
            Column("direction", is_name=True),
            Column("host memory", 4, is_name=True),
            Column("copies/s", 2),
            Column("bytes/s"),
            Column("copies", 5),
            Column("bytes", 1),
        ),
        3,
        _copies,
    ),
    ("memory", (Column("type", is_name=True), Column("in use")), 1, _memory),
    (
        "waits",
        (
            Column("in", is_name=True),
            Column("waits/s", 2),
            Column("of the time"),
            Column("mean", 1),
            Column("p99", 4),
            Column("waits", 5),
        ),
        2,
        _waits,
    ),
    (
        "errors",
        (Column("function", is_name=True), Column("error", is_name=True), Column("errors/s", 2), Column("errors")),
        3,
        _errors,
    ),
    (
        "requests",
        (
            Column("requests/s"),
            Column("mean", 4),
            Column("p50", 1),
            Column("p99"),
            Column("launches/request", 2),
            Column("requests", 5),
        ),
        0,
        _requests,
    ),
    ("losses", (Column("what is not counted in full", is_name=True), Column("events")), 1, _losses),
)


def _detail(detail: _Detail) -> Callable[[Interval], Table]:
    title, columns, sorted_by, cells = detail

    def make(interval: Interval) -> Table:
        rows = [
            Row(key, (_pid(now), _name(now.service), *of_row))
            for key, now in interval.now.processes.items()
            for of_row in cells(interval, key, now)
        ]
        if title == "losses":
            rows += (
                Row("", (EMPTY, Cell("the agent"), _name(event.replace("_", " ")), Cell(f"{count:,}", count, _WARNING)))
                for event, count in interval.now.lost.items()
                if count
            )
        return Table(title, (*_WHO, *columns), tuple(rows), sorted_by + len(_WHO), len(_WHO))

    return make


def _pid(now: ProcessFigures) -> Cell:
    return EMPTY if now.pid is None else Cell(str(now.pid), now.pid)


def _name(text: str) -> Cell:
    shown = one_line(text, MAX_NAME)
    return Cell(shown, shown)


def _rate(interval: Interval, now: float, before: float, unit: str = "") -> Cell:
    rate = interval.rate(now, before)
    if rate is None:
        return EMPTY
    return Cell(quantity(rate, unit) if unit else _short(rate), rate)


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"


def _share(share: float | None) -> Cell:
    return EMPTY if share is None else Cell(f"{share:.0%}", share)


def _busy(interval: Interval, now: ProcessFigures, before: ProcessFigures) -> Cell:
    """Return both bounds: the truth lies between."""
    bounds = [interval.rate(now.busy.get(b, 0.0), before.busy.get(b, 0.0)) for b in ("lower", "upper")]
    lower, upper = bounds
    if lower is None or upper is None or not now.busy:
        return EMPTY
    return Cell(f"{lower:.0%} to {upper:.0%}", upper)


def _count(count: int, style: str) -> Cell:
    return Cell(f"{count:,}", count, style) if count else EMPTY


def _known(now: ProcessFigures) -> Cell:
    """Return of which share of graph launches it is known what they execute, where that is not all."""
    if not now.unexpanded:
        return EMPTY
    share = 1 - now.unexpanded / max(now.graph_launches, now.unexpanded)
    return Cell(f"{share:.0%}", share)


def _time(seconds: float | None) -> Cell:
    return EMPTY if seconds is None else Cell(quantity(seconds, "s"), seconds)


def _number(number: float) -> Cell:
    return Cell(f"{number:,.1f}", number)


def _shape(now: Buckets, before: Buckets) -> Cell:
    """Return the mean of late; of all where nothing was launched lately."""
    recent = added(now, before)
    shown = recent if recent.count else now
    return _number_whole(shown.sum / shown.count) if shown.count else EMPTY


def _number_whole(number: float) -> Cell:
    return Cell(f"{number:,.0f}", number)


def _host(direction: Direction) -> Cell:
    text = " ".join(
        filter(None, (one_line(direction.host_memory, MAX_NAME), "in graphs" if direction.in_graph else ""))
    )
    return Cell(text, text, _WARNING if direction.host_memory == "pageable" else "")
