"""What can be set of how everything leaves as OTLP?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ...errors import ConfigError
from ..delivery.settings import RetrySettings
from ..settings import MAX_REQUEST_BYTES, Histograms, Temporality

Protocol = Literal["grpc", "http/protobuf", "http/json"]
Compression = Literal["gzip", "zstd", "none"]


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """Where OTLP goes and how: one endpoint for every signal, or one for each."""

    endpoint: str = "http://localhost:4317"
    """`http://host:4317`, `https://host`, or `host:4317`; for HTTP the base that `/v1/metrics` is appended to."""
    protocol: Protocol = "grpc"
    headers: tuple[tuple[str, str], ...] = ()
    compression: Compression = "gzip"
    """Zstandard over HTTP alone."""
    timeout_s: float = 10.0
    """For one attempt."""
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    insecure: bool | None = None
    """For endpoints without a scheme, which decides where there is one. None: TLS, but not to this very host."""
    insecure_skip_verify: bool = False
    """TLS without checking the server's certificate."""
    temporality: Temporality = "cumulative"
    histograms: Histograms = "exponential"
    max_request_bytes: int = MAX_REQUEST_BYTES
    retry: RetrySettings = field(default_factory=RetrySettings)
    queue_size: int = 1000
    """Requests that wait to be sent, per exporter; the oldest is dropped and counted when it is full."""
    signal_endpoints: tuple[tuple[str, str], ...] = ()
    """(signal, URL) for signals that go elsewhere; over HTTP such a URL is used as it is."""
    endpoint_said_by: str = field(default="OTEL_EXPORTER_OTLP_ENDPOINT", compare=False)
    """The key or the variable that says where this signal goes, or that would."""
    named_by_variables: bool = field(default=True, compare=False)
    """Whether headers and certificates are the variables' too, and not the keys'."""

    def __post_init__(self) -> None:
        if self.compression not in compressions(self.protocol):
            raise ConfigError(
                f"compression: gRPC has no {self.compression}; choose {' or '.join(compressions(self.protocol))}, or otlp_http"
            )


def compressions(protocol: Protocol) -> tuple[Compression, ...]:
    """Return what requests may be compressed by."""
    return ("gzip", "none") if protocol == "grpc" else ("gzip", "zstd", "none")
