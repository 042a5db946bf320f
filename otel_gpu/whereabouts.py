"""What is this process at? The function of this package that each of its threads is in."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).parent)


def whereabouts(is_wanted: Callable[[str], bool], waiting_in: str = "") -> list[str]:
    """Say of each thread whose name is wanted in which function it is; those left out that are in a module to wait for work."""
    threads = {t.ident: t.name for t in threading.enumerate()}
    found = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - documented, as CPython's own
        name = threads.get(ident, "")
        if not is_wanted(name):
            continue
        at: FrameType | None = frame
        while at is not None and not at.f_code.co_filename.startswith(_PACKAGE):
            at = at.f_back
        if at is not None and at.f_globals.get("__name__") != waiting_in:
            found.append(f"{at.f_globals.get('__name__')}.{at.f_code.co_name} in {name}")
    return found
