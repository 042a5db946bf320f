"""What can be set of where Prometheus finds the metrics?"""

from __future__ import annotations

from dataclasses import dataclass

from ...components.values import parse_endpoint
from ...errors import ConfigError


@dataclass(frozen=True, slots=True)
class ResourceToTelemetry:
    """`resource_to_telemetry_conversion`, as in the Collector's exporter."""

    enabled: bool = False
    """What a resource says are labels of each of its samples, not of `target_info` alone."""


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Metrics for who asks over HTTP, as Prometheus does."""

    endpoint: str = "localhost:9464"
    """Where it listens: `HOST:PORT`; without a host, on every address of this machine."""
    path: str = "/metrics"
    """What is asked for."""
    resource_to_telemetry_conversion: ResourceToTelemetry = ResourceToTelemetry()
    """Whether what a resource says stands on every sample."""

    def __post_init__(self) -> None:
        parse_endpoint(self.endpoint, "localhost:9464")
        if not self.path.startswith("/") or not self.path.isprintable() or not self.path.isascii() or " " in self.path:
            raise ConfigError(f"path: {self.path!r} is no path; write one such as /metrics")
