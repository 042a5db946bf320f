"""What does the screen show, and what do keys change about it? One table at a time, of all processes or of one."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace

from rich.text import Text

from ...exporters.console.quantities import quantity
from ...signals.structs import Frozen
from ...text import one_line
from .drawing import Letters, cut, lines
from .interval import Interval
from .table import Table
from .tables import tables

_MAX_FILTER = 60
_MAX_GPUS = 4
_HELP = (
    ("up down PgUp PgDn", "choose a row"),
    ("Enter", "look into the process of the chosen row"),
    ("Esc", "back to all processes; ends a filter"),
    ("Tab, left right", "the next table, or the one before"),
    ("1 to 8", "a table: processes, kernels, copies, memory, waits, errors, requests, losses"),
    ("s S", "sort by the next column, or the one before"),
    ("r", "the other way round"),
    ("/", "show only names with a text; Enter keeps it"),
    ("space", "stop, and go on"),
    ("q", "quit"),
)


class View(Frozen):
    """What a person has chosen to see."""

    table: int = 0
    process: str | None = None
    """The only one that is shown."""
    row: int = 0
    sorted_by: int | None = None
    is_reversed: bool = False
    filter: str = ""
    is_typing: bool = False
    """Letters are the filter's."""
    is_paused: bool = False
    shows_help: bool = False
    is_over: bool = False


class Screen:
    """Draws an interval as a view of it, and changes the view by keys."""

    def __init__(self, letters: Letters, what: str) -> None:
        """`what` is observed, or asked."""
        self._letters = letters
        self._what = what
        self._tables: list[Table] = []
        self._interval: Interval | None = None
        self._page = 10
        self.view = View()
        self.notice = ""
        """What went wrong last."""

    def show(self, interval: Interval) -> None:
        """Take what is to be drawn from now on."""
        self._interval = interval
        self._tables = tables(interval)

    def press(self, key: str) -> None:
        """Change the view."""
        view = self.view
        if view.is_typing:
            self.view = _typed(view, key)
        elif view.shows_help:
            self.view = replace(view, shows_help=False, is_over=key == "q")
        elif key.isdecimal() and 1 <= int(key) <= max(len(self._tables), 1):
            self.view = self._turned_to(int(key) - 1)
        elif (change := self._changes().get(key)) is not None:
            self.view = change(view)

    def draw(self, width: int, height: int) -> list[Text]:
        """Return the lines of the whole screen."""
        if self.view.shows_help:
            return self._help(width, height)
        head = [*self._head(width), *self._gpus(width)]
        foot = self._foot(width)
        if not self._tables:
            waiting = Text(cut("attaching, and waiting for the first figures", width, self._letters), end="")
            return [*head, waiting][:height]
        table = self._shown()
        self._page = max(height - len(head) - len(foot) - 1, 1)
        row = min(max(self.view.row, 0), max(len(table.rows) - 1, 0))
        self.view = replace(self.view, row=row)
        first = min(max(row - self._page // 2, 0), max(len(table.rows) - self._page, 0))
        # Columns are as wide as what is to be seen of them.
        visible = replace(table, rows=table.rows[first : first + self._page])
        body = list(lines(visible, self._letters, width, row - first))
        if not table.rows:
            body.append(Text(cut(self._nothing(), width, self._letters), style="dim", end=""))
        body += [Text(end="")] * (self._page + 1 - len(body))
        return [*head, *body, *foot][:height]

    def _shown(self) -> Table:
        view = self.view
        return self._scoped().matching(view.filter).in_order(view.sorted_by, is_reversed=view.is_reversed)

    def _scoped(self) -> Table:
        table = self._tables[self.view.table]
        return table if self.view.process is None else table.of(self.view.process)

    def _nothing(self) -> str:
        if self.view.filter:
            return f"nothing with {self.view.filter!r}; Esc shows all"
        if not self._tables[0].rows:
            return "no GPU process has called its driver yet"
        hints = {"requests": "none; start with --traces, for what is asked of servers"}
        return hints.get(self._tables[self.view.table].title, "none")

    def _head(self, width: int) -> list[Text]:
        interval, view = self._interval, self.view
        said = [f"otel-gpu top  {self._what}"]
        if interval is not None:
            count = len(interval.now.processes)
            said.append("1 process" if count == 1 else f"{count} processes")
            if interval.seconds is not None:
                said.append(f"last {interval.seconds:.1f} s")
            if lost := sum(interval.now.lost.values()):
                said.append(f"{lost:,} events lost")
            if view.process is not None and (only := interval.now.processes.get(view.process)) is not None:
                said.insert(1, f"process {only.pid} {one_line(only.service, 40)}")
        if view.is_paused:
            said.insert(0, "STOPPED")
        if self.notice:
            said.insert(1, one_line(self.notice, 200))
        return [
            Text(cut("  ".join(said), width, self._letters), style="bold", end="", no_wrap=True),
            self._tabs(width),
        ]

    def _tabs(self, width: int) -> Text:
        names = [t.title for t in self._tables] or ["processes"]
        line = Text(end="", no_wrap=True)
        chosen = names[min(self.view.table, len(names) - 1)]
        if sum(map(len, names)) + 3 * len(names) > width:
            line.append(cut(f"[{chosen}] {self.view.table + 1} of {len(names)}, Tab: next", width, self._letters))
            return line
        for name in names:
            line.append(f"[{name}]" if name == chosen else f" {name} ", "bold" if name == chosen else "dim")
        return line

    def _gpus(self, width: int) -> list[Text]:
        if self._interval is None:
            return []
        found = []
        for gpu in list(self._interval.now.gpus.values())[:_MAX_GPUS]:
            said = [one_line(gpu.name, 40)]
            if gpu.utilization is not None:
                said.append(f"{gpu.utilization:.0%}")
            if gpu.memory_used is not None and gpu.memory_size:
                said.append(f"{quantity(gpu.memory_used, 'By')} of {quantity(gpu.memory_size, 'By')}")
            if gpu.power is not None:
                said.append(f"{gpu.power:.0f} W")
            if gpu.temperature is not None:
                said.append(f"{gpu.temperature:.0f} C")
            found.append(Text(cut("  ".join(said), width, self._letters), end="", no_wrap=True))
        return found

    def _foot(self, width: int) -> list[Text]:
        view = self.view
        if view.is_typing:
            said = f"/{view.filter}_  Enter keeps it, Esc ends it"
        elif width < 60:
            said = "q quit  ? keys  / filter  s sort"
        else:
            enter = "Esc all" if view.process is not None else "Enter one process"
            said = f"q quit  {enter}  Tab table  s sort  r reverse  / filter  space stop  ? keys"
        if view.filter and not view.is_typing:
            said = f"/{view.filter}  {said}"
        return [Text(cut(said, width, self._letters), style="dim", end="", no_wrap=True)]

    def _help(self, width: int, height: int) -> list[Text]:
        wide = max(len(keys) for keys, _ in _HELP) + 2
        said = ["any key goes back"]
        for keys, what in _HELP:
            if wide + len(what) <= width:
                said.append(f"{keys.ljust(wide)}{what}")
            else:
                indent = "  "
                said += [keys, *textwrap.wrap(what, width, initial_indent=indent, subsequent_indent=indent)]
        return [Text(cut(line, width, self._letters), end="", no_wrap=True) for line in said][:height]

    def _changes(self) -> dict[str, Callable[[View], View]]:
        return {
            "q": lambda v: replace(v, is_over=True),
            "?": lambda v: replace(v, shows_help=True),
            "h": lambda v: replace(v, shows_help=True),
            "up": lambda v: replace(v, row=v.row - 1),
            "k": lambda v: replace(v, row=v.row - 1),
            "down": lambda v: replace(v, row=v.row + 1),
            "j": lambda v: replace(v, row=v.row + 1),
            "page up": lambda v: replace(v, row=v.row - self._page),
            "page down": lambda v: replace(v, row=v.row + self._page),
            "home": lambda v: replace(v, row=0),
            "end": lambda v: replace(v, row=1 << 30),
            "tab": lambda _: self._turned(1),
            "right": lambda _: self._turned(1),
            "back tab": lambda _: self._turned(-1),
            "left": lambda _: self._turned(-1),
            "s": lambda _: self._sorted(1),
            "S": lambda _: self._sorted(-1),
            "r": lambda v: replace(v, is_reversed=not v.is_reversed),
            "/": lambda v: replace(v, is_typing=True, row=0),
            " ": lambda v: replace(v, is_paused=not v.is_paused),
            "enter": lambda _: self._opened(),
            "escape": _closed,
            "delete": _closed,
        }

    def _turned(self, by: int) -> View:
        return self._turned_to((self.view.table + by) % max(len(self._tables), 1))

    def _turned_to(self, table: int) -> View:
        return replace(self.view, table=table, row=0, sorted_by=None, is_reversed=False)

    def _sorted(self, by: int) -> View:
        if not self._tables:
            return self.view
        table = self._scoped()
        before = table.sorted_by if self.view.sorted_by is None else self.view.sorted_by
        return replace(self.view, sorted_by=(before + by) % len(table.columns), row=0)

    def _opened(self) -> View:
        if not self._tables:
            return self.view
        rows = self._shown().rows
        if not rows or not (process := rows[min(self.view.row, len(rows) - 1)].process):
            return self.view
        table = self.view.table or 1
        return replace(self._turned_to(table), process=process, filter="")


def _closed(view: View) -> View:
    if view.filter:
        return replace(view, filter="", row=0)
    if view.process is not None:
        return replace(view, process=None, table=0, row=0, sorted_by=None, is_reversed=False)
    return view


def _typed(view: View, key: str) -> View:
    match key:
        case "enter":
            return replace(view, is_typing=False)
        case "escape":
            return replace(view, is_typing=False, filter="")
        case "clear":
            return replace(view, filter="")
        case "delete":
            return replace(view, filter=view.filter[:-1])
    if len(key) == 1 and len(view.filter) < _MAX_FILTER:
        return replace(view, filter=view.filter + key, row=0)
    return view
