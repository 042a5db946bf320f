"""What can be set for an exporter? Plain values, cheap to import: nothing here touches the network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

Protocol = Literal["grpc", "http/protobuf"]
Compression = Literal["gzip", "none"]
Temporality = Literal["cumulative", "delta"]
Signal = Literal["metrics", "traces", "profiles"]

MAX_REQUEST_BYTES = 3_500_000
"""Below the 4 MiB that a gRPC receiver accepts unless told otherwise."""


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """How a failed request is tried again: exponential back-off with jitter, as the Collector names it."""

    enabled: bool = True
    initial_interval_s: float = 1.0
    max_interval_s: float = 30.0
    multiplier: float = 1.5
    randomization_factor: float = 0.5
    """Each wait is multiplied by a random factor in 1 ± this."""
    max_elapsed_time_s: float = 300.0
    """A request older than this is given up and counted as failed; 0 never gives up."""


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """Where OTLP goes and how: one endpoint for every signal, or one for each."""

    endpoint: str = "http://localhost:4317"
    """`http://host:4317`, `https://host`, or `host:4317`; for HTTP the base that `/v1/metrics` is appended to."""
    protocol: Protocol = "grpc"
    headers: tuple[tuple[str, str], ...] = ()
    compression: Compression = "gzip"
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
    max_request_bytes: int = MAX_REQUEST_BYTES
    retry: RetrySettings = field(default_factory=RetrySettings)
    queue_size: int = 1000
    """Requests that wait to be sent, per exporter; the oldest is dropped and counted when it is full."""
    signal_endpoints: tuple[tuple[str, str], ...] = ()
    """(signal, URL) for signals that go elsewhere; over HTTP such a URL is used as it is."""


@dataclass(frozen=True, slots=True)
class RotationSettings:
    """How a file is kept small, as the Collector's file exporter has it."""

    max_megabytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 100
    """A file that would become larger is renamed, and a new one begun."""
    max_days: Annotated[int, msgspec.Meta(ge=0, le=36_500)] = 0
    """Renamed files that are older are removed; 0 keeps them whatever their age."""
    max_backups: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 100
    """Renamed files that are kept, the newest; 0 keeps all."""
    localtime: bool = False
    """Local time in the names of renamed files, instead of UTC."""


@dataclass(frozen=True, slots=True)
class FileSettings:
    """OTLP/JSON lines on disk."""

    path: str
    """The directory that gets `metrics.jsonl`, `traces.jsonl` and `profiles.jsonl`."""
    temporality: Temporality = "cumulative"
    append: bool = True
    """Go on where a file of an earlier run ends, or empty it first."""
    rotation: RotationSettings | None = None
    """None lets the files grow."""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Tables on standard output."""

    rows_per_metric: int = 10
    """Of each process, the largest ones; a line says how many more there are. 0 shows everything."""
    spans_per_interval: int = 50
    """The longest ones; a line says how many more there are. 0 shows everything."""


@dataclass(frozen=True, slots=True)
class SdkSettings:
    """An OpenTelemetry SDK exporter of another package, found by its entry point."""

    exporter: str
    """A name in the entry point group `opentelemetry_metrics_exporter`, or for spans `opentelemetry_traces_exporter`, such
    as `otlp_proto_http`."""
    timeout_s: float = 10.0
    queue_size: int = 10
    """Intervals that wait: of metrics all series, of spans at most 50,000 each."""
