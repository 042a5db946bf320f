"""What may stand below `otlp:` and `otlp_http:` in a configuration? The Collector's keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from ...components.values import Duration, parse_duration
from ...errors import ConfigError
from ..delivery.settings import RetrySettings
from ..settings import MAX_REQUEST_BYTES, Histograms, Temporality
from .settings import Compression, OtlpSettings


@dataclass(frozen=True, slots=True)
class TlsSection:
    """`tls:` as the Collector has it."""

    insecure: bool | None = None
    """No TLS, where the endpoint has no scheme, which decides; left out: TLS, but not to this very host."""
    insecure_skip_verify: bool = False
    """TLS without a look at who answers."""
    ca_file: str | None = None
    """A file in PEM: whom to trust; left out, whom this host trusts."""
    cert_file: str | None = None
    """A file in PEM: the certificate that the agent shows."""
    key_file: str | None = None
    """A file in PEM: its key."""


@dataclass(frozen=True, slots=True)
class RetrySection:
    """`retry_on_failure:` as the Collector has it."""

    enabled: bool = True
    """Whether what fails for a reason that may pass is tried again."""
    initial_interval: Duration = "1s"
    """The first wait."""
    max_interval: Duration = "30s"
    """The longest wait."""
    max_elapsed_time: Duration = "5m"
    """A request that is older is given up and counted as failed; 0 never gives up."""
    multiplier: Annotated[float, msgspec.Meta(ge=1)] = 1.5
    """Each wait is that much longer than the one before."""
    randomization_factor: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    """Each wait is multiplied by a random factor in 1 ± this."""


@dataclass(frozen=True, slots=True)
class QueueSection:
    """`sending_queue:` as the Collector has it."""

    queue_size: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1000
    """Requests; the oldest is dropped, and counted, when it is full."""


@dataclass(frozen=True, slots=True)
class OtlpSection:
    """OTLP by gRPC, or over HTTP; keys are the Collector's, and some of our own."""

    endpoint: str | None = None
    """`http://host:4317`, `https://host` or `host:4317`; over HTTP the base that `/v1/metrics` is appended to. Left out: as `OTEL_EXPORTER_OTLP_ENDPOINT` says, else this host."""
    metrics_endpoint: str | None = None
    """Where metrics go instead; over HTTP it is used as it is."""
    traces_endpoint: str | None = None
    """Where spans go instead."""
    profiles_endpoint: str | None = None
    """Where profiles go instead."""
    headers: dict[str, str] = field(default_factory=dict)
    """Sent with each request; over gRPC as metadata."""
    compression: Compression = "gzip"
    """How requests are compressed; Zstandard over HTTP alone."""
    encoding: Literal["proto", "json"] = "proto"
    """Protobuf, or over HTTP also JSON."""
    timeout: Duration = "10s"
    """Of one attempt, from the name to the last byte of the answer."""
    tls: TlsSection = field(default_factory=TlsSection)
    """How the other side is known, and the agent to it."""
    retry_on_failure: RetrySection = field(default_factory=RetrySection)
    """How a request that failed is tried again."""
    sending_queue: QueueSection = field(default_factory=QueueSection)
    """What waits to be sent."""
    temporality: Temporality = "cumulative"
    """Of counters and histograms: since the start, or since the last export."""
    histograms: Histograms = "exponential"
    """`explicit` for what does not understand exponential ones, as Prometheus without native histograms: bounds are powers of two."""
    max_request_bytes: Annotated[int, msgspec.Meta(ge=4096, le=64 << 20)] = MAX_REQUEST_BYTES
    """Larger ones are split; below the 4 MiB that gRPC receivers accept unless told otherwise."""

    def settings(self, base: OtlpSettings, given: Collection[str], where: str) -> OtlpSettings:
        """Return the exporter's settings: the keys that were `given`, on top of `base`."""
        retry = self.retry_on_failure
        tls = self.tls
        values: dict[str, object] = {
            "headers": tuple(self.headers.items()),
            "compression": self.compression,
            "timeout_s": parse_duration(self.timeout, f"{where}.timeout"),
            "temporality": self.temporality,
            "histograms": self.histograms,
        }
        values = {k: v for k, v in values.items() if k.removesuffix("_s") in given}
        if "encoding" in given:
            if base.protocol == "grpc" and self.encoding == "json":
                raise ConfigError(f"{where}.encoding: gRPC has protobuf alone; make it otlp_http, or leave this out")
            if base.protocol != "grpc":
                values["protocol"] = "http/json" if self.encoding == "json" else "http/protobuf"
        if self.endpoint is not None:
            values["endpoint"] = self.endpoint
        if "tls" in given:
            values |= dataclasses.asdict(tls)
        signals = {"metrics": self.metrics_endpoint, "traces": self.traces_endpoint, "profiles": self.profiles_endpoint}
        return dataclasses.replace(
            base,
            **values,  # type: ignore[arg-type]
            max_request_bytes=self.max_request_bytes,
            queue_size=self.sending_queue.queue_size,
            retry=RetrySettings(
                enabled=retry.enabled,
                initial_interval_s=parse_duration(retry.initial_interval, f"{where}.retry_on_failure.initial_interval"),
                max_interval_s=parse_duration(retry.max_interval, f"{where}.retry_on_failure.max_interval"),
                multiplier=retry.multiplier,
                randomization_factor=retry.randomization_factor,
                max_elapsed_time_s=parse_duration(retry.max_elapsed_time, f"{where}.retry_on_failure.max_elapsed_time"),
            ),
            signal_endpoints=tuple(
                ({**dict(base.signal_endpoints), **{s: e for s, e in signals.items() if e}}).items()
            ),
        )
