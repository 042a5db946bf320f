"""How does a test sit at a terminal? A program on a pseudo-terminal of some size, keys that it is told, and what it shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

_ANSWER_S = 60.0
_CONTROLS = re.compile(r"\x1b(?:\[[0-9;?<>=]*[ -/]*[@-~]|[()][A-Z0-9]|\][^\x07]*\x07|.)|[\x00-\x08\x0b\x0c\x0e-\x1a]")


class Terminal:
    """One program. A context manager."""

    def __init__(
        self, command: Sequence[str | Path], *, size: tuple[int, int] = (80, 24), environment: Mapping[str, str] = {}
    ) -> None:
        """`size` is columns and lines; a variable that is empty is left out of the environment."""
        self._master, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        every = {**os.environ, "TERM": "xterm", **environment}
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={name: value for name, value in every.items() if value},
            start_new_session=True,
        )
        os.close(theirs)
        self._shown = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    @property
    def raw(self) -> bytes:
        """All that was shown, with its controls."""
        return self._shown

    @property
    def text(self) -> str:
        """All that was shown, without what moves the cursor and colours."""
        return _CONTROLS.sub("", self._shown.decode("utf-8", "replace")).replace("\r", "")

    def press(self, keys: str) -> None:
        """Say what a person types."""
        os.write(self._master, keys.encode())

    def until(self, condition: Callable[[str], object]) -> str:
        """Read until what is shown meets a condition, and return that; AssertionError with it where it does not in time."""
        deadline = time.monotonic() + _ANSWER_S
        while not condition(self.text):
            assert time.monotonic() < deadline, self.text[-4000:]
            assert self._read(0.2) or self.process.poll() is None, self.text[-4000:]
        return self.text

    def end(self) -> int:
        """Read until the program has ended, and return its status."""
        deadline = time.monotonic() + _ANSWER_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text[-4000:]
            self._read(0.1)
        while self._read(0):
            pass
        return self.process.returncode

    def _read(self, timeout_s: float) -> bool:
        with contextlib.suppress(OSError):
            if select.select([self._master], [], [], timeout_s)[0]:
                data = os.read(self._master, 1 << 16)
                self._shown += data
                return bool(data)
        return False
