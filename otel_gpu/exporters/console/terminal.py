"""How is text written to an output that nobody may be reading? For a while, and not at all after that.

A pipe whose reader has stopped, or a terminal that is held, would otherwise keep whoever writes for ever.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import time
from collections.abc import Iterator
from typing import TextIO

_PORTION = select.PIPE_BUF
"""What a pipe that can be written to takes without waiting."""


def write_text(stream: TextIO, text: str, timeout_s: float) -> None:
    """Write a text; raises TimeoutError when it is not taken in time, another OSError when it cannot be written."""
    try:
        file = stream.fileno()
    except (OSError, AttributeError):  # a stream in memory
        stream.write(text)
        stream.flush()
        return
    deadline = time.monotonic() + timeout_s
    rest = memoryview(text.encode(stream.encoding or "utf-8", "replace"))
    with _never_waiting(file) as output:
        ready = select.poll()
        ready.register(output, select.POLLOUT)
        while rest:
            if not ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError(0, "nobody reads it")
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(output, rest[:_PORTION]) :]


@contextlib.contextmanager
def _never_waiting(file: int) -> Iterator[int]:
    """Open what a descriptor stands for once more, so that it does not wait here and still does elsewhere."""
    mode = os.fstat(file).st_mode
    opened = None
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with contextlib.suppress(OSError):
            opened = os.open(f"/proc/self/fd/{file}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        yield file if opened is None else opened
    finally:
        if opened is not None:
            os.close(opened)
