"""Was a key pressed that stops the demo? `q`, where somebody is at the terminal."""

from __future__ import annotations

import os
import select
import sys
from types import TracebackType
from typing import Any

_STOPPING = b"qQ"


class Keys:
    """Reads keys as they are pressed. A context manager; nothing at all where there is no terminal."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty() else None
        self._before: list[Any] | None = None

    @property
    def are_read(self) -> bool:
        """Whether somebody can press one."""
        return self._fd is not None

    def __enter__(self) -> Keys:
        if self._fd is not None and os.getpgrp() == os.tcgetpgrp(self._fd):
            import termios
            import tty

            self._before = termios.tcgetattr(self._fd)
            # Without waiting for the end of a line; Ctrl-C is a signal still.
            tty.setcbreak(self._fd)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._fd is not None and self._before is not None:
            import termios

            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def stops(self) -> bool:
        """Say whether the key was pressed; does not wait."""
        if self._fd is None or self._before is None:
            return False
        ready, _, _ = select.select([self._fd], [], [], 0)
        return bool(ready) and any(key in _STOPPING for key in os.read(self._fd, 64))
