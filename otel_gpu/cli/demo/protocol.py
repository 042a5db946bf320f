"""How does the demo talk to the program it observes? Lines on its standard input, lines back, the last one in JSON."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from collections.abc import Mapping


def wait_for_go(said: str = "") -> threading.Event:
    """Map the driver, say so, and wait for a line; the event that is returned is set by the next one.

    The driver is mapped but not called: the demo shows every call, so its probes have to be there first. What else the demo
    has to know is said with it.
    """
    ctypes.CDLL("libcuda.so.1")
    _say(f"ready {said}".rstrip())
    _wait_for_line()
    told = threading.Event()

    def listen() -> None:
        _wait_for_line()
        told.set()
        _wait_for_line()

    threading.Thread(target=listen, name="listener", daemon=True).start()
    return told


def report(tally: Mapping[str, int]) -> None:
    """Say what was done, then stay until the demo has looked: a process that is gone cannot be asked."""
    _say(json.dumps(tally))
    threading.Event().wait()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _wait_for_line() -> None:
    if not sys.stdin.readline():
        # The demo is gone or done; nothing here is worth an orderly end.
        os._exit(0)
