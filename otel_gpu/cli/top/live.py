"""How does it go on, look after look? On a terminal a screen that keys change; elsewhere tables, or JSON, one after the other."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ...errors import OtelGpuError
from ...signals.structs import Frozen
from .document import document
from .drawing import Letters, lines, no_color
from .interval import Interval
from .keys import Keyboard
from .screen import Screen
from .sources import Source, Taken
from .tables import tables

_ROWS = 20
"""Of each table that is printed; what there is more is said."""
_INDENT = "  "
_LOOK_S = 0.2
"""How soon a new size of the terminal is noticed."""
_ASK_S = 0.5
"""How often somebody else's figures are asked for while they do not change."""
_PATIENCE_S = 60.0
"""How long the second look is waited for where only one is to be printed."""


class Asked(Frozen):
    """What was asked for."""

    what: str
    interval_s: float = 1.0
    duration_s: float = math.inf
    once: bool = False
    as_json: bool = False
    in_utf8: bool = True


def follow(source: Source, asked: Asked, stopped: threading.Event, out: TextIO) -> None:
    """Show the figures of a source until it is over, the time is up, or somebody has enough."""
    # The terminal says how large it is, also when that changes; variables that say it are those of another moment.
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    console = Console(
        file=out,
        no_color=no_color() or None,
        highlight=False,
        markup=False,
        emoji=False,
        _environ=environment,
    )
    if is_interactive(asked, out) and not console.is_dumb_terminal:
        _on_screen(source, asked, stopped, console)
    else:
        _in_turn(source, asked, stopped, out)


def is_interactive(asked: Asked, out: TextIO) -> bool:
    """Say whether somebody is there, to look and to press keys."""
    return not asked.once and not asked.as_json and out.isatty() and sys.stdin is not None and sys.stdin.isatty()


def _in_turn(source: Source, asked: Asked, stopped: threading.Event, out: TextIO) -> None:
    """Print one interval after the other."""
    letters = Letters(asked.in_utf8)
    for interval in _intervals(source, asked, stopped):
        if asked.as_json:
            text = json.dumps(document(interval, time.time())) + "\n"
        else:
            text = "".join(f"{line}\n" for line in _printed(interval, letters, _room(out)))
        out.write(text)
        out.flush()


def _intervals(source: Source, asked: Asked, stopped: threading.Event) -> Iterator[Interval]:
    """Yield an interval whenever there is something newer, and what is left when nothing comes any more."""
    began = time.monotonic()
    until = began + (min(asked.duration_s, _PATIENCE_S) if asked.once else asked.duration_s)
    before, due = source.take(), began + asked.interval_s
    while True:
        is_over = _wait(source, min(due, until), stopped) or time.monotonic() >= until
        now = source.take()
        is_newer = now.at_s > before.at_s
        if is_newer or is_over:
            yield Interval.between(before, now)
            before = now
        if is_over or (is_newer and asked.once):
            return
        at = time.monotonic()
        due = max(due + asked.interval_s, at) if is_newer else at + min(_ASK_S, asked.interval_s)


def _wait(source: Source, until_s: float, stopped: threading.Event) -> bool:
    """Wait; True when nothing comes any more."""
    while (left := until_s - time.monotonic()) > 0:
        if stopped.wait(min(left, _LOOK_S)) or source.is_over():
            return True
    return stopped.is_set() or source.is_over()


def _room(out: TextIO) -> int:
    """Return how wide a line may be that is printed: as the terminal is; what a program reads is whole."""
    return os.get_terminal_size(out.fileno()).columns - len(_INDENT) if out.isatty() else 0


def _printed(interval: Interval, letters: Letters, room: int) -> Iterator[str]:
    """Yield the lines of all tables that have rows."""
    at = time.strftime("%H:%M:%S")
    took = "" if interval.seconds is None else f", the last {interval.seconds:.1f} s"
    yield f"{at}{took}"
    if not interval.now.processes:
        yield "no GPU process has called its driver yet"
    for table in tables(interval):
        if not table.rows:
            continue
        shown = table.in_order()
        yield ""
        yield table.title
        for line in lines(replace(shown, rows=shown.rows[:_ROWS]), letters, max(room, 0)):
            yield f"{_INDENT}{line.plain.rstrip()}"
        if (more := len(table.rows) - _ROWS) > 0:
            yield letters.plain(f"  … {more:,} more")
    yield ""


def _on_screen(source: Source, asked: Asked, stopped: threading.Event, console: Console) -> None:
    """Draw again whenever there are newer figures, a key is pressed, or the terminal has another size."""
    screen = Screen(Letters(asked.in_utf8), asked.what)
    until = time.monotonic() + asked.duration_s
    with Keyboard(sys.stdin.fileno()) as keyboard, Live(console=console, screen=True, auto_refresh=False) as live:
        before: Taken | None = None
        due, size = 0.0, (0, 0)
        while not screen.view.is_over and not stopped.is_set() and not source.is_over() and time.monotonic() < until:
            is_newer = False
            if time.monotonic() >= due and not screen.view.is_paused:
                now, screen.notice = _taken(source, before)
                is_newer = now is not None and (before is None or now.at_s > before.at_s)
                if is_newer and now is not None:
                    screen.show(Interval.between(before, now))
                    before = now
                due = time.monotonic() + (asked.interval_s if is_newer else min(_ASK_S, asked.interval_s))
            keys = keyboard.wait(
                min(_LOOK_S, max(due - time.monotonic(), 0.0)) if not screen.view.is_paused else _LOOK_S
            )
            for key in keys:
                screen.press(key)
            width, height = console.size
            if keys or is_newer or screen.notice or (width, height) != size:
                size = width, height
                live.update(Group(*_broken(screen.draw(width, height))), refresh=True)


def _taken(source: Source, before: Taken | None) -> tuple[Taken | None, str]:
    """Return the latest figures; what fails once they have come before is said, and tried again."""
    try:
        return source.take(), ""
    except OtelGpuError as error:
        if before is None:
            raise
        return None, str(error)


def _broken(drawn: list[Text]) -> Iterator[Text]:
    for line in drawn:
        line.end = "\n"
        line.no_wrap, line.overflow = True, "crop"
        yield line
