"""How does the log look? One line a record, on standard error, whatever stands in it.

Names and paths of observed programs are escaped, and credentials left out, where a message is made; here is the last
line of defence, for what was forgotten and for the messages of libraries.
"""

from __future__ import annotations

import logging
import sys

from ..text import escaped, without_credentials

_MAX_LINE = 4_000
_PACKAGE = __name__.partition(".")[0]
_PLAIN = "%(levelname)s %(message)s"
_TIMESTAMPED = f"%(asctime)s {_PLAIN}"


class EscapingFormatter(logging.Formatter):
    """Escapes control characters. Tracebacks keep their line breaks, and are indented: no line of theirs is a record."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name in logging
        record.message = escaped(without_credentials(record.message), _MAX_LINE)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802 - the name in logging
        return indented(super().formatException(ei))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - the name in logging
        return indented(stack_info)


def indented(text: str) -> str:
    """Return lines of a traceback, printable each, that cannot be taken for lines of another kind."""
    lines = without_credentials(text).rstrip("\n").split("\n")
    return "\n".join(f"  {escaped(line, _MAX_LINE)}" for line in lines)


def configure(level: int, *, timestamps: bool = False) -> None:
    """Send the log to standard error, unless the program that this one is part of has a log of its own."""
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h.formatter, EscapingFormatter)]:
        root.removeHandler(handler)
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EscapingFormatter(_TIMESTAMPED if timestamps else _PLAIN))
    root.addHandler(handler)
    root.setLevel(max(level, logging.INFO))
    # What libraries say for their own developers holds URLs whole.
    logging.getLogger(_PACKAGE).setLevel(level)
