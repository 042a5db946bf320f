"""What do the standard OTEL_* variables ask for, beside where OTLP goes (`exporters/otlp/variables.py`)?"""

from __future__ import annotations

from dataclasses import dataclass

from ..values import parse_pairs
from ..variables import Variables

_LOG_LEVELS = {"debug": "debug", "info": "info", "warn": "warn", "warning": "warn", "error": "error"}


@dataclass(frozen=True, slots=True)
class Environment(Variables):
    """The variables, with what the service wants to know of them."""

    @property
    def disabled(self) -> bool:
        """OTEL_SDK_DISABLED."""
        return bool(self.flag("OTEL_SDK_DISABLED"))

    @property
    def interval_s(self) -> float | None:
        """OTEL_METRIC_EXPORT_INTERVAL."""
        return self.milliseconds("OTEL_METRIC_EXPORT_INTERVAL")

    @property
    def log_level(self) -> str | None:
        """OTEL_LOG_LEVEL."""
        return self.choice("OTEL_LOG_LEVEL", _LOG_LEVELS)

    @property
    def metrics_exporter(self) -> str | None:
        """OTEL_METRICS_EXPORTER."""
        return self.choice("OTEL_METRICS_EXPORTER", {n: n for n in ("otlp", "console", "none")})

    @property
    def resource_attributes(self) -> tuple[tuple[str, str], ...]:
        """OTEL_RESOURCE_ATTRIBUTES with OTEL_SERVICE_NAME in front of its service.name."""
        name = "OTEL_RESOURCE_ATTRIBUTES"
        pairs = dict(parse_pairs(self.text(name) or "", name))
        if (service := self.text("OTEL_SERVICE_NAME")) is not None:
            pairs["service.name"] = service
        return tuple(pairs.items())
