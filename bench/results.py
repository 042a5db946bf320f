"""What was measured, and is it good enough? Results, and the table that the README quotes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """One row. `value` is judged: a ratio where there is a reference, else ours itself."""

    what: str
    ours: str
    reference: str
    value: float | None
    """None when it could not be measured; `note` then says why."""
    unit: str = "×"
    must: float | None = None
    """The limit; None for a row that only informs."""
    aim: float | None = None
    at_least: bool = False
    """The limits are lower ones."""
    note: str = ""

    @property
    def verdict(self) -> str:
        """Say how it stands against the limits."""
        if self.value is None:
            return "not measured"
        if self.must is None:
            return ""
        if self._within(self.aim):
            return "aim"
        return "ok" if self._within(self.must) else "MISSED"

    def _within(self, limit: float | None) -> bool:
        if self.value is None or limit is None:
            return False
        return self.value >= limit if self.at_least else self.value <= limit


def unmeasured(what: str, reason: str) -> Result:
    """Return the row of something that cannot be measured here."""
    return Result(what, "", "", None, note=reason)


def shown(results: Iterable[Result]) -> Iterator[Result]:
    """Yield rows as they come, each said on standard error at once: a table is printed when all are there, or never."""
    for result in results:
        what, ours, reference, value, limit, _, verdict = _cells(result)
        print(f"  {what}: {ours} / {reference} = {value} ({limit}) {verdict}".rstrip(), file=sys.stderr, flush=True)
        yield result


def table(results: Sequence[Result]) -> str:
    """Return the table as text (and as Markdown)."""
    rows: list[tuple[str, ...]] = [("what", "ours", "reference", "value", "must", "aim", "")]
    rows += [_cells(r) for r in results]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    notes = [f"- {r.what}: {r.note}" for r in results if r.note]
    return "\n".join([*lines, "", *notes])


def _cells(result: Result) -> tuple[str, ...]:
    sign = "≥" if result.at_least else "≤"

    def limit(value: float | None) -> str:
        return "" if value is None else f"{sign} {value:g}{_unit(result.unit)}"

    value = "" if result.value is None else f"{result.value:.3g}{_unit(result.unit)}"
    return (result.what, result.ours, result.reference, value, limit(result.must), limit(result.aim), result.verdict)


def _unit(unit: str) -> str:
    return unit if unit in {"", "×"} else f" {unit}"
