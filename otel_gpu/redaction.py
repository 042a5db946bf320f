"""How are credentials kept out of messages? What stands in a URL beside host and path is not shown."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"
_USER = re.compile(r"(?<=://)[^\s'\"]*@")
_QUERY = re.compile(r"(://[^\s'\"?]*\?)[^\s'\"]+")
_ADDRESS = re.compile(
    r"(?P<scheme>[^:/?#]*://)?(?P<host>\[[^\]]*\]|[^:/?#]*)(?P<port>:[^/?#]*)?(?P<path>[^?#]*)(?P<more>.*)", re.DOTALL
)
_SHORTEST = 4
"""Characters; a shorter secret guards nothing, and its like stands in every text."""


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
