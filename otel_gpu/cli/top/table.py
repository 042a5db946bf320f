"""How do rows fit the width of a terminal? Columns that matter least go first, names are cut, and nothing wraps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from ...signals.structs import Frozen

_GAP = 2
_SHORTEST_NAME = 8


class Cell(NamedTuple):
    """What stands in a row: as it is shown, and as it is sorted."""

    text: str
    order: float | str = 0.0
    style: str = ""


EMPTY = Cell("", -1.0)


class Column(NamedTuple):
    """One column of a table."""

    heading: str
    weight: int = 0
    """Those with the largest go first where there is too little room; 0 stays."""
    is_name: bool = False
    """Names stand left, and may be cut; numbers stand right, and may not."""


class Row(Frozen):
    """One row; `process` is whose it is."""

    process: str
    cells: tuple[Cell, ...]


class Table(Frozen):
    """Rows below headings."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    sorted_by: int
    """By which column it is sorted at first, the largest on top."""
    whose: int = 0
    """How many of the first columns say whose a row is."""

    def of(self, process: str) -> Table:
        """Return the rows of one process, without the columns that say whose they are."""
        rows = (Row(r.process, r.cells[self.whose :]) for r in self.rows if r.process == process)
        return Table(self.title, self.columns[self.whose :], tuple(rows), self.sorted_by - self.whose)

    def matching(self, text: str) -> Table:
        """Return the rows of which a name holds a text, in whatever case."""
        wanted = text.casefold()
        named = [i for i, column in enumerate(self.columns) if column.is_name]
        found = (r for r in self.rows if any(wanted in r.cells[i].text.casefold() for i in named))
        return self if not text else replace(self, rows=tuple(found))

    def in_order(self, column: int | None = None, *, is_reversed: bool = False) -> Table:
        """Return the rows sorted by a column: numbers from the largest on, names from A on."""
        by = self.sorted_by if column is None else min(column, len(self.columns) - 1)
        numbers = not self.columns[by].is_name
        rows = sorted(self.rows, key=lambda r: tuple(c.text for c in r.cells))
        rows.sort(key=lambda r: _order(r.cells[by]), reverse=numbers != is_reversed)
        return replace(self, rows=tuple(rows), sorted_by=by)

    def widths(self, room: int) -> dict[int, int]:
        """Return which columns there is room for, and how wide each is; 0 of room is all the room that is wanted."""
        wanted = {
            i: max([cell_len(column.heading), *(cell_len(row.cells[i].text) for row in self.rows)])
            for i, column in enumerate(self.columns)
            # What nobody has anything of says nothing.
            if not column.weight or i == self.sorted_by or any(row.cells[i].text for row in self.rows)
        }
        if room <= 0:
            return wanted
        shown = dict(wanted)
        while len(shown) > 1 and _least(self.columns, shown) > room:
            droppable = [i for i in shown if self.columns[i].weight]
            if not droppable:
                break
            del shown[max(droppable, key=lambda i: (self.columns[i].weight, i))]
        names = [i for i in shown if self.columns[i].is_name]
        while (excess := _width(shown.values()) - room) > 0 and names:
            widest = max(names, key=lambda i: shown[i])
            if shown[widest] <= 1:
                break
            others = max((shown[i] for i in names if i != widest), default=0)
            shown[widest] -= min(excess, max(shown[widest] - others, 1), shown[widest] - 1)
        return shown


def fitted(text: str, width: int, column: Column, ellipsis: str) -> str:
    """Return a text that is so many cells wide."""
    if cell_len(text) > width:
        cut = max(width - len(ellipsis), 0)
        text = set_cell_size(text, cut) + ellipsis[: width - cut]
    blank = " " * (width - cell_len(text))
    return text + blank if column.is_name else blank + text


def _order(cell: Cell) -> tuple[int, float, str]:
    return (1, cell.order, "") if isinstance(cell.order, int | float) else (0, 0.0, cell.order)


def _least(columns: Sequence[Column], shown: dict[int, int]) -> int:
    """Return how much room columns take with their names as short as they may be."""
    return _width([min(width, _SHORTEST_NAME) if columns[i].is_name else width for i, width in shown.items()])


def _width(widths: Collection[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)
