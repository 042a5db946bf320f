"""What can be set of where Prometheus finds the metrics?"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import ConfigError
from ...values import parse_endpoint


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """`exporters.prometheus`."""

    endpoint: str = "localhost:9464"
    """Where it listens: `HOST:PORT`; without a host, on every address of this machine."""
    path: str = "/metrics"

    def __post_init__(self) -> None:
        parse_endpoint(self.endpoint, "localhost:9464")
        if not self.path.startswith("/") or not self.path.isprintable() or not self.path.isascii() or " " in self.path:
            raise ConfigError(f"path: {self.path!r} is no path; write one such as /metrics")
