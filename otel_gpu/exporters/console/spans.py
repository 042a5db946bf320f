"""How does a person at a terminal see spans? A line for each: when, what, for how long, whose, and its attributes."""

from __future__ import annotations

import heapq
import io
import time
from collections.abc import Iterator, Sequence

from ...signals.spans import Span, SpanStatus
from ...signals.structs import Frozen
from ...text import one_line
from .quantities import quantity
from .titles import title

_MAX_NAME, _MAX_ATTRIBUTE, _MAX_ATTRIBUTES = 80, 60, 24


class _Row(Frozen):
    """One span as it is shown: every cell is ready to be printed."""

    at: str
    name: str
    duration: str
    owner: str
    attributes: str
    failed: bool


def spans_as_text(spans: Sequence[Span], limit: int, *, in_color: bool) -> str:
    """Return lines for the longest spans, at most `limit`, in the order in which they began."""
    shown = heapq.nlargest(limit, spans, key=lambda span: span.end_ns - span.start_ns) if limit < len(spans) else spans
    rows = [_row(span) for span in sorted(shown, key=lambda span: span.start_ns)]
    more = len(spans) - len(rows)
    rest = f"… {more:,} more spans, all of them shorter" if more > 0 else ""
    return _rich(rows, rest) if in_color else _plain(rows, rest)


def _row(span: Span) -> _Row:
    seconds, rest = divmod(span.start_ns, 1_000_000_000)
    try:
        at = time.strftime("%H:%M:%S", time.localtime(seconds))
    except (OverflowError, OSError, ValueError):  # no time that a clock shows
        at = "--:--:--"
    pairs = [
        f"{one_line(key, _MAX_ATTRIBUTE)}={one_line(str(v), _MAX_ATTRIBUTE)}"
        for key, v in span.attributes[:_MAX_ATTRIBUTES]
    ]
    if (more := len(span.attributes) - len(pairs)) > 0:
        pairs.append(f"… {more} more")
    if span.links:
        pairs.append(f"links={len(span.links)}")
    if failed := span.status is SpanStatus.ERROR:
        pairs.insert(0, f"error: {one_line(span.status_message, _MAX_NAME)}" if span.status_message else "error")
    pairs.append(f"trace={span.context.trace_id.hex()}")
    return _Row(
        f"{at}.{rest // 1_000_000:03}",
        one_line(span.name, _MAX_NAME),
        quantity((span.end_ns - span.start_ns) / 1e9, "s"),
        title(span.resource),
        " ".join(pairs),
        failed,
    )


def _in_columns(rows: Sequence[_Row]) -> Iterator[tuple[str, str, str, str, str]]:
    names, durations, owners = (
        max(len(cell) for cell in column) for column in zip(*((r.name, r.duration, r.owner) for r in rows), strict=True)
    )
    for row in rows:
        yield row.at, row.name.ljust(names), row.duration.rjust(durations), row.owner.ljust(owners), row.attributes


def _plain(rows: Sequence[_Row], rest: str) -> str:
    return "\n".join([*map("  ".join, _in_columns(rows)), *([rest] if rest else []), "", ""])


def _rich(rows: Sequence[_Row], rest: str) -> str:
    from rich.console import Console
    from rich.text import Text

    text = io.StringIO()
    console = Console(file=text, force_terminal=True, highlight=False)
    for row, (at, name, duration, owner, attributes) in zip(rows, _in_columns(rows), strict=True):
        styles = ("dim", "red" if row.failed else "cyan", "bold", "", "dim")
        # As Text: names hold brackets, not markup.
        cells = [
            Text(cell, style=style) for cell, style in zip((at, name, duration, owner, attributes), styles, strict=True)
        ]
        console.print(Text("  ").join(cells), soft_wrap=True)
    if rest:
        console.print(Text(rest, style="dim"))
    console.print()
    return text.getvalue()
