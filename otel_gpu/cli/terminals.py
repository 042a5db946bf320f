"""Which letters does a terminal know? Without UTF-8 it gets no others than those of ASCII, and the rest as escapes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping

_LOCALES = ("LC_ALL", "LC_CTYPE", "LANG")


def knows_utf8(environ: Mapping[str, str] | None = None) -> bool:
    """Say what the locale says, by default the one that this process was started in."""
    known = _as_started() if environ is None else environ
    said = next((value for name in _LOCALES if (value := known.get(name))), "C")
    return said.partition(".")[2].partition("@")[0].lower().replace("-", "") == "utf8"


def _as_started() -> Mapping[str, str]:
    """Return the locale before Python took a plain one for UTF-8 and said so in its own variables (PEP 538)."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = (os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0"))
            return {name: value for name, _, value in pairs if name in _LOCALES}
    except OSError:
        return os.environ


def encode_for_terminal(environ: Mapping[str, str] | None = None) -> None:
    """Write to terminals that know no UTF-8 in ASCII; files and pipes get UTF-8 whatever the locale."""
    if knows_utf8(environ):
        return
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.isatty():
            stream.reconfigure(encoding="ascii", errors="backslashreplace")
