"""Which exporter of the OpenTelemetry SDK does a name stand for? Found by the entry points of installed packages."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TypeVar

from ...errors import ConfigError
from ...text import one_line, without_credentials

_Kind = TypeVar("_Kind")


_PACKAGES = {
    name: f"opentelemetry-exporter-{name.replace('_', '-')}"
    for name in ("otlp", "otlp_proto_grpc", "otlp_proto_http", "zipkin", "zipkin_json", "zipkin_proto")
}
"""The packages of OpenTelemetry itself, by the names of their exporters."""


def installed(name: str, of: str, kind: type[_Kind], where: str) -> _Kind:
    """Make the exporter `of` metrics or traces that has a name; ConfigError where there is none, or it cannot be made.

    It takes its settings from its environment.
    """
    found = {entry.name: entry for entry in entry_points(group=f"opentelemetry_{of}_exporter")}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(
            f"{where}: no installed package has a {of} exporter named {name!r}; install it where otel-gpu is: pip install "
            f"{_PACKAGES.get(name, 'PACKAGE, the one that has it')}; or name one of those installed: {known}"
        )
    try:
        exporter = found[name].load()()
    except Exception as error:
        raise ConfigError(
            f"{where}: the SDK exporter {name!r} cannot be made: {one_line(without_credentials(str(error)))}"
        ) from error
    if not isinstance(exporter, kind):
        raise ConfigError(f"{where}: {name!r} is no {of} exporter but a {type(exporter).__name__}; choose another one")
    return exporter
