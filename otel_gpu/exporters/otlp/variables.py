"""Where does OTLP go by the OTEL_EXPORTER_OTLP_* variables? OpenTelemetry's specification, read to the letter.

A signal's own variable (OTEL_EXPORTER_OTLP_METRICS_…) goes before the general one.
"""

from __future__ import annotations

from typing import cast
from urllib.parse import urlsplit

from ...components.values import parse_pairs
from ...components.variables import Variables
from ...errors import ConfigError
from ...signals import Signal
from ...text import endpoint_without_credentials
from ..settings import Histograms, Temporality
from .settings import Compression, OtlpSettings, Protocol, compressions

_TEMPORALITIES: dict[str, Temporality] = {"cumulative": "cumulative", "delta": "delta", "lowmemory": "delta"}
_HISTOGRAMS: dict[str, Histograms] = {
    "explicit_bucket_histogram": "explicit",
    "base2_exponential_bucket_histogram": "exponential",
}
_PROTOCOLS: dict[str, Protocol] = {"grpc": "grpc", "http/protobuf": "http/protobuf", "http/json": "http/json"}
_DEFAULT_ENDPOINTS: dict[Protocol, str] = {
    "grpc": "http://localhost:4317",
    "http/protobuf": "http://localhost:4318",
    "http/json": "http://localhost:4318",
}


def from_variables(variables: Variables, signal: Signal, protocol: Protocol | None = None) -> OtlpSettings:
    """Return the OTLP exporter's settings for a signal; `protocol` is one that the configuration fixes."""

    def which(suffix: str) -> str:
        own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_{suffix}"
        return own if variables.text(own) is not None else f"OTEL_EXPORTER_OTLP_{suffix}"

    own_endpoint = variables.text(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    endpoint = variables.text("OTEL_EXPORTER_OTLP_ENDPOINT")
    chosen = cast(
        "Protocol",
        protocol or variables.choice(which("PROTOCOL"), _PROTOCOLS) or _usual_protocol(own_endpoint or endpoint),
    )
    temporality = variables.choice("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", _TEMPORALITIES)
    aggregation = variables.choice("OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", _HISTOGRAMS)
    compression = variables.choice(which("COMPRESSION"), {one: one for one in compressions(chosen)})
    headers = which("HEADERS")
    return OtlpSettings(
        endpoint=endpoint or _DEFAULT_ENDPOINTS[chosen],
        protocol=chosen,
        headers=parse_pairs(variables.text(headers) or "", headers),
        compression=cast("Compression", compression or "gzip"),
        timeout_s=variables.milliseconds(which("TIMEOUT")) or 10.0,
        ca_file=variables.text(which("CERTIFICATE")),
        cert_file=variables.text(which("CLIENT_CERTIFICATE")),
        key_file=variables.text(which("CLIENT_KEY")),
        insecure=variables.flag(which("INSECURE")),
        temporality=cast("Temporality", temporality or "cumulative"),
        histograms=cast("Histograms", aggregation or "exponential"),
        signal_endpoints=((signal, own_endpoint),) if own_endpoint else (),
        endpoint_said_by=which("ENDPOINT"),
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
