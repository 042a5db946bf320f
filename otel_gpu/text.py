"""Text as it may be shown: what comes from strangers on one line, printable and bounded, and credentials left out.

Names, paths and messages come from observed programs and from receivers. Unescaped they could forge lines of a log,
move a terminal's cursor, or fill a disk. What stands in a URL beside host and path is not shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_SHOWN = 300
HIDDEN = "***"
_USER = re.compile(r"(?<=://)[^\s'\"]*@")
_QUERY = re.compile(r"(://[^\s'\"?]*\?)[^\s'\"]+")
_ADDRESS = re.compile(
    r"(?P<scheme>[^:/?#]*://)?(?P<host>\[[^\]]*\]|[^:/?#]*)(?P<port>:[^/?#]*)?(?P<path>[^?#]*)(?P<more>.*)", re.DOTALL
)
_SHORTEST = 4
"""Characters; a shorter secret guards nothing, and its like stands in every text."""


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


def without_credentials(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text without the secrets, and without the users and queries of the URLs in it."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, HIDDEN)
    return _QUERY.sub(rf"\1{HIDDEN}", _USER.sub(f"{HIDDEN}@", text))


def endpoint_without_credentials(endpoint: str) -> str:
    """Return an endpoint as it may be shown, however wrongly it is written: scheme, host, port and path."""
    before, at, address = endpoint.rpartition("@")
    scheme = f"{before.partition('://')[0]}://" if "://" in before else ""
    parts = _ADDRESS.fullmatch(f"{scheme}{address}")
    assert parts is not None  # every part may be empty
    port, more = parts["port"] or "", parts["more"]
    if port and not (port[1:].isascii() and port[1:].isdigit()):
        port = f":{HIDDEN}"  # a password, in an endpoint whose host was forgotten
    user = f"{HIDDEN}@" if at else ""
    return f"{parts['scheme'] or ''}{user}{parts['host']}{port}{parts['path']}{f'{more[0]}{HIDDEN}' if more else ''}"
