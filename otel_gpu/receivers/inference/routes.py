"""Which of a server's routes does a path belong to? What is left of it without its ids, and few of them for each process.

The framework's own route cannot be seen from outside, and the conventions forbid to put a path in its place, so that
`http.route` is never set. What is made here is the `url.template` of the conventions, and the span's name; `url.path`
stays the path, without query.
"""

from __future__ import annotations

import re
import string
from collections.abc import Hashable
from functools import lru_cache
from itertools import pairwise
from urllib.parse import unquote

import msgspec

from ...signals.structs import Record
from ...signals.telemetry import OTHER

MAX_PATH = 128
"""Bytes of a path, and of a route."""
MAX_ROUTES = 100
"""Of one process."""
MAX_REFUSED = 20
"""Of one process, that were never found: what scanners ask for takes nothing from the routes that are."""
ID = "{id}"
_REST = "/*"
"""Stands for the last parts of a path that is too long."""
_MAX_READ = 4096
_MAX_PART = 64
"""Characters of a part that nobody gives a route."""

_MAX_PARTS = 4096
"""Parts that are remembered, since most come again."""

_UNSAFE = re.compile(r"%(?![0-9A-Fa-f]{2})|[^%!$&'()*+,\-./0-9:;=@A-Z_a-z~]")
_HALF_ESCAPE = re.compile(r"%[0-9A-Fa-f]?\Z")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]{0,15}://[^/?#]*")
_BEHIND_PATH = re.compile(r"[?#]")

_NUMBER = re.compile(r"[-+]?[0-9][0-9.,:_\-]*\Z")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\Z")
_HEX = re.compile(r"(?:0[xX])?(?=[0-9A-Fa-f]{8})(?:[A-Fa-f]*[0-9][0-9A-Fa-f]*|[A-Fa-f]{16,})\Z")
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}\Z")
_ALPHANUMERIC = re.compile(r"[A-Za-z0-9]{16,}\Z")
_BASE64 = re.compile(r"[A-Za-z0-9_\-+/=.~]{16,}\Z")
_PREFIXED = re.compile(r"([A-Za-z][A-Za-z0-9]*[-_:])(.{4,})\Z")
"""An id behind what it is the id of: `chatcmpl-…`, `user_…`, `order:…`."""
_WITH_EXTENSION = re.compile(r"(.+)(\.[A-Za-z][A-Za-z0-9]{0,4})\Z")
_CLASSES = str.maketrans(
    {c: k for k, cs in (("0", string.digits), ("A", string.ascii_uppercase), ("a", string.ascii_lowercase)) for c in cs}
)


def path_of(target: str) -> str:
    """Return the path of a request's target: without query and fragment, printable ASCII, of bounded size."""
    path = _escaped(_raw_path(target))
    return path if len(path) <= MAX_PATH else _HALF_ESCAPE.sub("", path[:MAX_PATH])


def template_of(target: str, *, is_cut: bool = False) -> str:
    """Return a target's path without its ids; where the target was captured in part, without its last part."""
    path = _raw_path(target)
    if not path.startswith("/"):
        return "*" if path == "*" else ""
    parts = path.split("/")[1:]
    if is_rest := (is_cut and _BEHIND_PATH.search(target) is None) or len(path) >= _MAX_READ:
        del parts[-1]
    made, size = "", 0
    for n, part in enumerate(parts):
        is_last = n == len(parts) - 1
        if not part and not is_last:
            continue
        shown = "/" + (_template(part) if len(part) <= _MAX_PART else ID)
        size += len(shown)
        if size > MAX_PATH - (0 if is_last and not is_rest else len(_REST)):
            is_rest = True
            break
        made += shown
    return made + _REST if is_rest else made


class Routes:
    """The routes of every process, few of each."""

    def __init__(self, max_routes: int = MAX_ROUTES, max_refused: int = MAX_REFUSED) -> None:
        self._max_routes = max_routes
        self._max_refused = max_refused
        self._known: dict[Hashable, _Known] = {}

    def admit(self, process: Hashable, template: str, status: int | None) -> str:
        """Return the route that a request with this answer belongs to: the template, or `other` where there are too many.

        A call of a method that its server does not have is one that was answered with 404.
        """
        if not template:
            return ""
        known = self._known.get(process)
        if known is None:
            known = self._known[process] = _Known()
        if template in known.found:
            return template
        if status is not None and status not in _REFUSED:
            if len(known.found) < self._max_routes:
                known.refused.discard(template)
                known.found.add(template)
                return template
        elif len(known.refused) < self._max_refused:
            known.refused.add(template)
        return template if template in known.refused else OTHER

    def forget(self, process: Hashable) -> None:
        """Say that a process is gone."""
        self._known.pop(process, None)


_REFUSED = frozenset({400, 404, 405, 414, 501})
"""Answers that say nothing of a route being there."""


class _Known(Record):
    """The routes of one process."""

    found: set[str] = msgspec.field(default_factory=set)
    refused: set[str] = msgspec.field(default_factory=set)


def _raw_path(target: str) -> str:
    """Return the path as it was sent, of a whole URL too (RFC 9112, 3.2)."""
    target = target[:_MAX_READ]
    if (origin := _ORIGIN.match(target)) is not None:
        target = target[origin.end() :]
        if not target.startswith("/"):
            target = "/" + target
    return _BEHIND_PATH.split(target, maxsplit=1)[0]


def _escaped(path: str) -> str:
    return _UNSAFE.sub(_escape, path)


def _escape(match: re.Match[str]) -> str:
    """Escape a character, which stands for a byte where it can."""
    character = match[0]
    return "".join(f"%{b:02X}" for b in character.encode("latin-1" if character <= "\xff" else "utf-8", "replace"))


@lru_cache(_MAX_PARTS)
def _template(part: str) -> str:
    """Return a part of a path, or what stands for it."""
    part = part.partition(";")[0]
    text = unquote(part, errors="replace")
    if not (text.isascii() and text.isprintable()) or " " in text or "@" in text:
        return ID
    if _is_id(text):
        return ID
    if (match := _WITH_EXTENSION.match(text)) is not None and _is_id(match[1]):
        return ID + match[2]
    if (match := _PREFIXED.match(text)) is not None and _is_id(match[2]):
        return match[1] + ID
    return _escaped(part)


def _is_id(text: str) -> bool:
    """Tell whether a program made up this text, or counted to it."""
    if any(pattern.match(text) for pattern in (_NUMBER, _UUID, _HEX, _ULID)):
        return True
    classes = text.translate(_CLASSES)
    if _ALPHANUMERIC.match(text) and 4 <= classes.count("0") < len(text):
        return True
    # Random characters change their kind at most places, words at few.
    changes = sum(a != b for a, b in pairwise(classes))
    return _BASE64.match(text) is not None and {"0", "A", "a"} <= set(classes) and 5 * changes >= 2 * len(text)
