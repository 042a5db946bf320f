"""How is a text of a stranger shown? On one line, printable and bounded.

Names, paths and messages come from observed programs and from receivers. Unescaped they could forge lines of a log,
move a terminal's cursor, or fill a disk.
"""

from __future__ import annotations

MAX_SHOWN = 300


def escaped(text: str, limit: int = MAX_SHOWN) -> str:
    r"""Return the text with what is not printable as an escape (`\n`, `\x1b`, `\u202e`), and cut to `limit` characters.

    Bytes that were no UTF-8, which `os.fsdecode` keeps as lone surrogates, are shown as bytes: `\xff`.
    """
    shown = text[: limit + 1]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else _escape(c) for c in shown)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def one_line(text: str, limit: int = MAX_SHOWN) -> str:
    """Return a message as one line: white space of any kind is one blank, the rest as in `escaped`."""
    return escaped(" ".join(text[: 2 * limit].split()), limit)


def _escape(character: str) -> str:
    point = ord(character)
    if 0xDC80 <= point <= 0xDCFF:
        return f"\\x{point - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()
