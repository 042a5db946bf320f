"""How does a person see the demo's figures? Tables with rates, drawn again and again, and the totals at the end."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...exporters.console.quantities import quantity
from ...text import one_line
from .figures import Figures, Kernel, Sum

_NONE = Kernel()
_NAME_WIDTH = 44


def live(now: Figures, before: Figures, seconds: float) -> RenderableType:
    """Return the tables of this moment; `before` is how things stood so many seconds ago."""
    tables = (
        _kernels(now, before, seconds),
        _copies(now, before, seconds),
        _memory(now),
        _waits(now, before, seconds),
        _errors(now),
    )
    shown = [t for t in tables if t.row_count]
    return (
        Group(*(part for table in shown for part in (table, Text()))) if shown else Text("nothing yet\n", style="dim")
    )


def totals(counted: Figures, did: Mapping[str, int]) -> Table:
    """Return what otel-gpu counted beside what the program says it did."""
    table = _table("In all", ("what", "otel-gpu counted", *(("the program made", "") if did else ())))
    for what, count in counted.totals().items():
        made = did.get(what, 0)
        told = (f"{made:,}", "equal" if made == count else "DIFFERENT") if did else ()
        _row(table, what, f"{count:,}", *told)
    return table


def _kernels(now: Figures, before: Figures, seconds: float) -> Table:
    table = _table("Kernels", ("name", "launches/s", "in graphs/s", "blocks", "threads per block", "in all"))
    by_use = sorted(now.kernels.items(), key=lambda item: -item[1].launches - item[1].in_graphs)
    for name, kernel in by_use[:10]:
        old = before.kernels.get(name, _NONE)
        _row(
            table,
            one_line(name, _NAME_WIDTH),
            _rate(kernel.launches - old.launches, seconds),
            _rate(kernel.in_graphs - old.in_graphs, seconds),
            f"{kernel.grid.mean:,.0f}" if kernel.launches else "",
            f"{kernel.block.mean:,.0f}" if kernel.launches else "",
            f"{kernel.launches + kernel.in_graphs:,}",
        )
    return table


def _copies(now: Figures, before: Figures, seconds: float) -> Table:
    table = _table("Copies", ("from and to", "host memory", "copies/s", "bytes/s", "share", "in all"))
    for (kind, host), copied in sorted(now.copies.items(), key=lambda item: -item[1].total):
        old = before.copies.get((kind, host), Sum())
        of_kind = now.copied(kind)
        _row(
            table,
            _direction(kind),
            host,
            _rate(copied.count - old.count, seconds),
            quantity((copied.total - old.total) / seconds, "By") + "/s",
            f"{copied.total / of_kind:.0%}" if of_kind else "",
            quantity(copied.total, "By"),
            style="yellow" if host == "pageable" else "",
        )
    return table


def _memory(now: Figures) -> Table:
    table = _table("Memory in use", ("type", "bytes"))
    for kind, size in sorted(now.memory.items(), key=lambda item: -item[1]):
        _row(table, kind, quantity(size, "By"))
    return table


def _waits(now: Figures, before: Figures, seconds: float) -> Table:
    table = _table("Waiting for the GPU", ("in", "waits/s", "mean", "share of the time"))
    for function, wait in sorted(now.waits.items(), key=lambda item: -item[1].total)[:5]:
        old = before.waits.get(function, Sum())
        recent = Sum(wait.count - old.count, wait.total - old.total)
        _row(
            table,
            function,
            _rate(recent.count, seconds),
            quantity(recent.mean, "s"),
            f"{recent.total / seconds:.0%}",
        )
    return table


def _errors(now: Figures) -> Table:
    table = _table("Errors", ("function", "error", "in all"))
    for (function, error), count in sorted(now.errors.items(), key=lambda item: -item[1]):
        _row(table, function, error, f"{count:,}", style="red")
    return table


def _direction(kind: str) -> str:
    return {
        "MemcpyHostToDevice": "host to GPU",
        "MemcpyDeviceToHost": "GPU to host",
        "MemcpyDeviceToDevice": "within the GPU",
        "MemcpyPeer": "GPU to GPU",
    }.get(kind, kind)


def _rate(count: float, seconds: float) -> str:
    return f"{count / seconds:,.0f}" if count else ""


def _table(title: str, headings: tuple[str, ...]) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold cyan", box=None, pad_edge=False, header_style="dim"
    )
    for heading in headings:
        table.add_column(
            heading, justify="left" if heading in (headings[0], "host memory", "error", "") else "right", no_wrap=True
        )
    return table


def _row(table: Table, *cells: str, style: str = "") -> None:
    """Add cells as plain text: names hold brackets, not markup."""
    table.add_row(*(Text(cell) for cell in cells), style=style)
