"""What is being waited for? A bar on a terminal; elsewhere one line, and only where it takes a while."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Protocol

_SAID_AFTER_S = 1.0


class Bar(Protocol):
    """Something that shows how far it is."""

    def update(self, text: str, done: float = 0.0, total: float | None = None) -> None:
        """Say what is going on; `total` and `done` are seconds, or None where nobody knows how long it takes."""
        ...


@contextlib.contextmanager
def bar() -> Iterator[Bar]:
    """Show what is waited for on the standard error."""
    if not sys.stderr.isatty():
        yield _Line()
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        task = progress.add_task("", total=None)

        class _Rich:
            def update(self, text: str, done: float = 0.0, total: float | None = None) -> None:
                progress.update(task, description=escape(text), completed=done, total=total)

        yield _Rich()


class _Line:
    """Says once what is waited for, when that has taken a while."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._said = False

    def update(self, text: str, done: float = 0.0, total: float | None = None) -> None:  # noqa: ARG002 - Bar's
        if not self._said and total is None and time.monotonic() - self._began >= _SAID_AFTER_S:
            self._said = True
            print(text, file=sys.stderr, flush=True)
