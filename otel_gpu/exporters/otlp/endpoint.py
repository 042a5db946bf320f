"""Where exactly does a signal go? From the endpoint as a person writes it to a target that can be dialled."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from ...errors import ConfigError
from ...signals import Signal
from ...signals.structs import Frozen
from ...text import endpoint_without_credentials, one_line, without_credentials
from .settings import OtlpSettings

PATHS: dict[Signal, str] = {
    "metrics": "v1/metrics",
    "traces": "v1/traces",
    "profiles": "v1development/profiles",
}
METHODS: dict[Signal, str] = {
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "profiles": "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
}
PROFILES_VERSION = ("otlp-profiles-development-version", "1")
"""Says which incompatible version of the profiles messages is sent: the one of opentelemetry-proto 1.45."""

_HEADER_NAME = re.compile(r"[0-9a-z_.\-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Target(Frozen):
    """One signal's destination: `address` is host:port for gRPC, the full URL for HTTP."""

    signal: Signal
    address: str
    tls: bool
    headers: tuple[tuple[str, str], ...]

    def shown(self, text: str) -> str:
        """Return words about a request as they may be logged: one line, without what the request was authorized by."""
        values = [value for _, value in self.headers]
        secrets = [*values, *(word for value in values for word in value.split()), self.address.partition("?")[2]]
        return one_line(without_credentials(text, secrets))


def target(settings: OtlpSettings, signal: Signal) -> Target:
    """Resolve where a signal goes; raises ConfigError for an endpoint or a header that cannot be."""
    own = dict(settings.signal_endpoints).get(signal)
    if settings.protocol == "grpc":
        address, tls = _grpc_address(own or settings.endpoint, settings.insecure)
    elif own:
        address, tls = _http_url(own, None, settings.insecure)
    else:
        address, tls = _http_url(settings.endpoint, PATHS[signal], settings.insecure)
    return Target(signal, address, tls, _headers(settings, signal))


def _grpc_address(endpoint: str, insecure: bool | None) -> tuple[str, bool]:
    if endpoint.startswith("unix:"):
        return endpoint, insecure is False
    scheme, host, port, _ = _parts(endpoint)
    if port is None:
        port = _DEFAULT_PORTS[scheme] if scheme else 4317
    return f"{host}:{port}", _speaks_tls(scheme, host, insecure)


def _http_url(endpoint: str, path: str | None, insecure: bool | None) -> tuple[str, bool]:
    scheme, host, port, rest = _parts(endpoint)
    tls = _speaks_tls(scheme, host, insecure)
    base = f"{'https' if tls else 'http'}://{host}" + (f":{port}" if port is not None else "")
    if path is not None:
        route, question, query = rest.partition("?")
        rest = f"{route.rstrip('/')}/{path}{question}{query}"
    return base + (rest or "/"), tls


def _speaks_tls(scheme: str, host: str, insecure: bool | None) -> bool:
    """A scheme decides, as the OTLP exporter specification says; without one TLS is the default.

    Not so on this very host, where nobody could listen and certificates are rare.
    """
    if scheme:
        return scheme == "https"
    if insecure is not None:
        return not insecure
    try:
        return not ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host != "localhost"


def _parts(endpoint: str) -> tuple[str, str, int | None, str]:
    """Take an endpoint apart: scheme ("" when missing), host, port, and path with query."""
    text = endpoint.strip()
    if "://" not in text:
        text = "//" + text
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError:
        # The parser's own words quote what it takes for the port: the password, where the host was forgotten.
        raise _bad(endpoint, "its host or port cannot be read") from None
    if url.scheme not in ("", "http", "https"):
        raise _bad(endpoint, "its scheme is neither http nor https")
    if not host or any(c.isspace() for c in text):
        raise _bad(endpoint, "it names no host")
    if url.username is not None:
        raise _bad(endpoint, "it holds a user name; put credentials into the headers")
    if ":" in host:
        host = f"[{host}]"
    return url.scheme, host, port, url.path + (f"?{url.query}" if url.query else "")


def _bad(endpoint: str, why: str) -> ConfigError:
    shown = endpoint_without_credentials(endpoint)
    return ConfigError(f"the OTLP endpoint {shown!r} cannot be used: {why}; write it like http://localhost:4317")


def _headers(settings: OtlpSettings, signal: Signal) -> tuple[tuple[str, str], ...]:
    headers = {name.strip().lower(): value.strip() for name, value in settings.headers}
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            # What follows a wrong separator is the value, which may be a credential.
            known = _HEADER_NAME.match(name)
            shown = f"{known[0] if known else ''}…"
            raise ConfigError(f"the OTLP header name {shown!r} cannot be sent: use letters, digits, '-', '_' and '.'")
        if not _HEADER_VALUE.fullmatch(value):
            raise ConfigError(f"the value of the OTLP header {name!r} cannot be sent: use printable ASCII")
    if signal == "profiles":
        headers.setdefault(*PROFILES_VERSION)
    return tuple(headers.items())
