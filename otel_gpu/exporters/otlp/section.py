"""What may stand below `otlp:` and `otlp_http:` in a configuration? The Collector's keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from ...errors import ConfigError
from ...values import Duration, parse_duration
from ..delivery.settings import RetrySettings
from ..settings import MAX_REQUEST_BYTES, Histograms, Temporality
from .settings import Compression, OtlpSettings


@dataclass(frozen=True, slots=True)
class TlsSection:
    """`tls:` as the Collector has it."""

    insecure: bool | None = None
    insecure_skip_verify: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class RetrySection:
    """`retry_on_failure:` as the Collector has it."""

    enabled: bool = True
    initial_interval: Duration = "1s"
    max_interval: Duration = "30s"
    max_elapsed_time: Duration = "5m"
    multiplier: Annotated[float, msgspec.Meta(ge=1)] = 1.5
    randomization_factor: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5


@dataclass(frozen=True, slots=True)
class QueueSection:
    """`sending_queue:` as the Collector has it."""

    queue_size: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1000


@dataclass(frozen=True, slots=True)
class OtlpSection:
    """`otlp:` and `otlp_http:` as the Collector has them, and `temporality`."""

    endpoint: str | None = None
    metrics_endpoint: str | None = None
    traces_endpoint: str | None = None
    profiles_endpoint: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    compression: Compression = "gzip"
    encoding: Literal["proto", "json"] = "proto"
    timeout: Duration = "10s"
    tls: TlsSection = field(default_factory=TlsSection)
    retry_on_failure: RetrySection = field(default_factory=RetrySection)
    sending_queue: QueueSection = field(default_factory=QueueSection)
    temporality: Temporality = "cumulative"
    histograms: Histograms = "exponential"
    max_request_bytes: Annotated[int, msgspec.Meta(ge=4096, le=64 << 20)] = MAX_REQUEST_BYTES

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
