"""What do the standard OTEL_* variables ask for? OpenTelemetry's specification, read to the letter.

An empty variable is an unset one, and timeouts and intervals are milliseconds. A signal's own variable
(OTEL_EXPORTER_OTLP_METRICS_…) goes before the general one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from ..errors import ConfigError
from ..exporters.otlp.settings import Compression, OtlpSettings, Protocol
from ..exporters.settings import Temporality
from ..redaction import endpoint_without_credentials
from ..signals import Signal
from .values import nearest, parse_pairs

_TEMPORALITIES: dict[str, Temporality] = {"cumulative": "cumulative", "delta": "delta", "lowmemory": "delta"}
_LOG_LEVELS = {"debug": "debug", "info": "info", "warn": "warn", "warning": "warn", "error": "error"}
_DEFAULT_ENDPOINTS: dict[Protocol, str] = {"grpc": "http://localhost:4317", "http/protobuf": "http://localhost:4318"}


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables, with typed questions on them."""

    variables: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """Return a variable's value; None when it is unset or empty."""
        return self.variables.get(name, "").strip() or None

    def milliseconds(self, name: str) -> float | None:
        """Return the seconds that a variable in milliseconds says."""
        text = self.text(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 < value <= 86_400_000:
            raise ConfigError(f"{name}: {text!r} is no number of milliseconds; 10000 means 10 seconds")
        return value / 1000

    def choice(self, name: str, valid: Mapping[str, str]) -> str | None:
        """Return what `valid` says for the variable's value, in any case."""
        text = self.text(name)
        if text is None:
            return None
        if text.lower() not in valid:
            raise ConfigError(f"{name}: {text!r} is not supported; {nearest(text.lower(), valid)}")
        return valid[text.lower()]

    def flag(self, name: str) -> bool | None:
        """Return whether a variable is `true`; every other value is false, as the specification has it."""
        text = self.text(name)
        return None if text is None else text.lower() == "true"

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

    def otlp(self, signal: Signal, protocol: Protocol | None = None) -> OtlpSettings:
        """Return the OTLP exporter's settings for a signal; `protocol` is one that the configuration fixes."""

        def which(suffix: str) -> str:
            own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_{suffix}"
            return own if self.text(own) is not None else f"OTEL_EXPORTER_OTLP_{suffix}"

        own_endpoint = self.text(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
        endpoint = self.text("OTEL_EXPORTER_OTLP_ENDPOINT")
        protocols = {"grpc": "grpc", "http/protobuf": "http/protobuf"}
        chosen = cast(
            "Protocol",
            protocol or self.choice(which("PROTOCOL"), protocols) or _usual_protocol(own_endpoint or endpoint),
        )
        temporality = self.choice("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", _TEMPORALITIES)
        compression = self.choice(which("COMPRESSION"), {"gzip": "gzip", "none": "none"})
        headers = which("HEADERS")
        return OtlpSettings(
            endpoint=endpoint or _DEFAULT_ENDPOINTS[chosen],
            protocol=chosen,
            headers=parse_pairs(self.text(headers) or "", headers),
            compression=cast("Compression", compression or "gzip"),
            timeout_s=self.milliseconds(which("TIMEOUT")) or 10.0,
            ca_file=self.text(which("CERTIFICATE")),
            cert_file=self.text(which("CLIENT_CERTIFICATE")),
            key_file=self.text(which("CLIENT_KEY")),
            insecure=self.flag(which("INSECURE")),
            temporality=cast("Temporality", temporality or "cumulative"),
            signal_endpoints=((signal, own_endpoint),) if own_endpoint else (),
        )


def _usual_protocol(endpoint: str | None) -> Protocol:
    """gRPC, unless the endpoint names OTLP/HTTP's own port."""
    if endpoint is None:
        return "grpc"
    try:
        port = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}").port
    except ValueError:
        shown = endpoint_without_credentials(endpoint)
        raise ConfigError(f"OTEL_EXPORTER_OTLP_ENDPOINT: {shown!r} is no address; write http://host:4317") from None
    return "http/protobuf" if port == 4318 else "grpc"
