"""How are tables drawn? As lines of cells, of letters that the terminal knows; styled where there is color or stress."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ...signals.structs import Frozen
from .table import Cell, Row, Table, fitted

_GAP = "  "


class Letters(Frozen):
    """What a terminal can show."""

    unicode: bool = True

    @property
    def ellipsis(self) -> str:
        """What stands for what was cut."""
        return "…" if self.unicode else "~"

    def plain(self, text: str) -> str:
        """Return a text in these letters."""
        if self.unicode or text.isascii():
            return text
        known = text.replace("…", "~").replace("µ", "u").replace("–", "-")
        return known.encode("ascii", "backslashreplace").decode()


def lines(table: Table, letters: Letters, room: int = 0, mark: int | None = None) -> Iterator[Text]:
    """Yield the heading and every row, each as wide as there is room; `mark` is the row that is chosen."""
    rows = (Row(r.process, tuple(c._replace(text=letters.plain(c.text)) for c in r.cells)) for r in table.rows)
    shown = replace(table, rows=tuple(rows))
    widths = shown.widths(room)
    yield _line(
        [
            (fitted(shown.columns[i].heading, width, shown.columns[i], letters.ellipsis), _head(i, table))
            for i, width in widths.items()
        ],
        room,
    )
    for number, row in enumerate(shown.rows):
        cells = [(_fitted(row.cells[i], width, shown, i, letters), row.cells[i].style) for i, width in widths.items()]
        yield _line(cells, room, "reverse" if number == mark else "")


def cut(text: str, room: int, letters: Letters) -> str:
    """Return a text that fits into so many cells."""
    text = letters.plain(text)
    return text if cell_len(text) <= room else set_cell_size(text, max(room - 1, 0)) + letters.ellipsis[: max(room, 0)]


def no_color(environ: Mapping[str, str] = os.environ) -> bool:
    """Say whether nobody wants color: no-color.org."""
    return bool(environ.get("NO_COLOR"))


def _fitted(cell: Cell, width: int, table: Table, column: int, letters: Letters) -> str:
    return fitted(cell.text, width, table.columns[column], letters.ellipsis)


def _head(column: int, table: Table) -> str:
    return "bold underline" if column == table.sorted_by else "bold"


def _line(cells: list[tuple[str, str]], room: int, style: str = "") -> Text:
    line = Text(no_wrap=True, end="")
    for number, (text, of_cell) in enumerate(cells):
        if number:
            line.append(_GAP)
        line.append(text, of_cell or None)
    if room:
        line.truncate(room)
    if style:
        if room:
            line.pad_right(max(room - line.cell_len, 0))
        line.stylize(style)
    return line
