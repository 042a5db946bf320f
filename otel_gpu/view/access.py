"""Who may ask? Whoever has the token; where there is none, programs of this host and the view's own page, and no other site.

Without a token the view listens to this host alone, but a browser on it runs pages of strangers. These are told by the name that
they call the view by (DNS rebinding), by where they say that they come from, and by what a page cannot send without asking.
"""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request

COOKIE = "otel_gpu_view"
_OWN = frozenset({"same-origin", "none", ""})


class Access:
    """Says why a request is not allowed."""

    def __init__(self, token: str, host: str) -> None:
        self._token = token.encode()
        self._host = host.lower()

    @property
    def has_token(self) -> bool:
        """Whether a token is asked for."""
        return bool(self._token)

    def is_the_token(self, said: str) -> bool:
        """Compare in a time that does not tell how much of it is right."""
        return hmac.compare_digest(said.encode("utf-8", "surrogateescape"), self._token)

    def refusal(self, request: Request, *, is_page: bool = False) -> tuple[int, str] | None:
        """Return the status and why; None where it may. A page may be gone to from anywhere."""
        headers = request.headers
        host = headers.get("host", "")
        if not self._token and not self._is_ours(_name(host)):
            return 403, "this name is none of the view's; use http://localhost"
        origin = headers.get("origin")
        if origin is not None and _netloc(origin) != host.lower():
            return 403, "requests of other sites are not answered"
        if headers.get("sec-fetch-site", "") not in _OWN and not is_page:
            return 403, "requests of other sites are not answered"
        if self._token and not (self._bears(headers.get("authorization", "")) or self._has_cookie(request)):
            return 401, "give the view's token: authorization: Bearer TOKEN"
        return None

    def _bears(self, said: str) -> bool:
        scheme, _, token = said.partition(" ")
        return scheme.lower() == "bearer" and self.is_the_token(token.strip())

    def _has_cookie(self, request: Request) -> bool:
        return self.is_the_token(request.cookies.get(COOKIE, ""))

    def _is_ours(self, name: str) -> bool:
        return name in {"localhost", self._host} or is_loopback(name)


def is_loopback(host: str) -> bool:
    """Say whether only this host can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:  # a bracket that is not closed
        return None


def _name(host: str) -> str:
    """Return the name of a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
