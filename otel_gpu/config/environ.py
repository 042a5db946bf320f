"""What do the standard OTEL_* variables ask for, beside where OTLP goes (`exporters/otlp/variables.py`)?"""

from __future__ import annotations

from dataclasses import dataclass

from ..components.values import parse_pairs
from ..components.variables import Variables
from ..errors import ConfigError
from ..signals import Signal
from .otel_variables import without_effect

_LOG_LEVELS = {"debug": "debug", "info": "info", "warn": "warn", "warning": "warn", "error": "error"}
_EXPORTERS = ("otlp", "console")
_OF_METRICS = (*_EXPORTERS, "prometheus")


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
    def exporters(self) -> dict[Signal, tuple[str, ...]]:
        """The exporters of each signal; of profiles the specification has no variable yet."""
        found: dict[Signal, tuple[str, ...]] = {"metrics": ("otlp",), "traces": ("otlp",), "profiles": ("otlp",)}
        metrics = self.listed("OTEL_METRICS_EXPORTER", _OF_METRICS)
        traces = self.listed("OTEL_TRACES_EXPORTER", _EXPORTERS)
        if metrics is not None:
            found["metrics"] = metrics
        if traces is not None:
            found["traces"] = traces
        return found

    @property
    def resource_attributes(self) -> tuple[tuple[str, str], ...]:
        """OTEL_RESOURCE_ATTRIBUTES with OTEL_SERVICE_NAME in front of its service.name."""
        name = "OTEL_RESOURCE_ATTRIBUTES"
        try:
            pairs = dict(parse_pairs(self.text(name) or "", name))
        except ConfigError as e:
            # The specification: with any error the whole value is discarded.
            self.ignore(name, str(e).removeprefix(f"{name}: "))
            pairs = {}
        if (service := self.text("OTEL_SERVICE_NAME")) is not None:
            pairs["service.name"] = service
        return tuple(pairs.items())

    @property
    def notices(self) -> tuple[str, ...]:
        """What is to be said of variables that have no effect, or whose value has none; to be asked for last."""
        if self.text("OTEL_CONFIG_FILE") is not None:
            return ()  # the file stands in their place
        ignored = [f"{name} is ignored: {why}" for name, why in self.ignored.items()]
        return (*ignored, *without_effect(self.values))
