"""Which variables has OpenTelemetry's specification, and what does each of them do here?

One table, of which the documentation is made: a variable of the specification is honoured, or it is said at the start
that it has no effect. After "Environment Variable Specification" and "OpenTelemetry Protocol Exporter" of version 1.60.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OtelVariable:
    """A variable, or several that differ by a signal's name."""

    name: str
    does: str
    """What it sets, or why it has no effect."""
    is_honoured: bool = True
    signals: tuple[str, ...] = ()
    """Of those that have one of their own: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_METRICS_ENDPOINT and so on."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that it has."""
        beginning, _, end = self.name.rpartition("_OTLP_")
        return (self.name, *(f"{beginning}_OTLP_{signal}_{end}" for signal in self.signals))


_NO_LOGS = "the agent exports no logs"
_NO_SDK = "the agent makes spans of what it observed, without an SDK's processors and limits"
_SIGNALS = ("METRICS", "TRACES", "PROFILES")


def _otlp(end: str, does: str) -> OtelVariable:
    return OtelVariable(f"OTEL_EXPORTER_OTLP_{end}", does, signals=_SIGNALS)


def _without(names: str, why: str) -> tuple[OtelVariable, ...]:
    return tuple(OtelVariable(name, why, is_honoured=False) for name in names.split())


VARIABLES = (
    OtelVariable("OTEL_SDK_DISABLED", "`true`: nothing is observed"),
    OtelVariable(
        "OTEL_RESOURCE_ATTRIBUTES",
        "`key=value,key=value`, percent-encoded: the agent's own resource; what is observed gets `discovery.resource_attributes`",
    ),
    OtelVariable("OTEL_SERVICE_NAME", "`service.name` of the agent's resource"),
    OtelVariable(
        "OTEL_CONFIG_FILE",
        'a file of OpenTelemetry\'s declarative configuration (`file_format: "1.0"`), in place of all other variables: '
        "`disabled`, `log_level`, `resource`, and the exporters `otlp_http`, `otlp_grpc` and `console` of `meter_provider` and "
        "`tracer_provider`; what else stands there is said to have no effect",
    ),
    OtelVariable("OTEL_LOG_LEVEL", "`debug`, `info`, `warn` or `error`"),
    OtelVariable(
        "OTEL_METRICS_EXPORTER",
        "`otlp`, `console`, `prometheus`, several as a list, or `none`, when there is no `exporters` section",
    ),
    OtelVariable("OTEL_TRACES_EXPORTER", "the same for spans, without `prometheus`; profiles go to `otlp`"),
    OtelVariable("OTEL_METRIC_EXPORT_INTERVAL", "milliseconds; 10000 unless set"),
    _otlp(
        "ENDPOINT",
        "where OTLP goes; over HTTP the base that `/v1/metrics` is appended to; a signal's own is used as it is",
    ),
    _otlp("PROTOCOL", "`grpc`, `http/protobuf` or `http/json`; unset: gRPC, unless the endpoint's port is 4318"),
    _otlp("HEADERS", "`key=value,key=value`, percent-encoded"),
    _otlp("TIMEOUT", "milliseconds of one attempt, as the specification has it (Python's SDK takes seconds)"),
    _otlp("COMPRESSION", "`gzip` (default), `none`, and over HTTP `zstd`"),
    _otlp("CERTIFICATE", "a file in PEM: whom to trust"),
    _otlp("CLIENT_CERTIFICATE", "a file in PEM"),
    _otlp("CLIENT_KEY", "a file in PEM"),
    _otlp("INSECURE", "`true`: no TLS, where the endpoint has no scheme"),
    OtelVariable("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "`cumulative`, `delta` or `lowmemory`"),
    OtelVariable(
        "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
        "`base2_exponential_bucket_histogram` (default, as they are counted) or `explicit_bucket_histogram`: bounds are powers "
        "of two",
    ),
    OtelVariable("OTEL_EXPORTER_PROMETHEUS_HOST", "where Prometheus scrapes the agent; `localhost` unless set"),
    OtelVariable("OTEL_EXPORTER_PROMETHEUS_PORT", "the port of it; 9464 unless set"),
    *_without("OTEL_METRIC_EXPORT_TIMEOUT", "an export is retried for as long as its exporter says"),
    *_without("OTEL_METRICS_EXEMPLAR_FILTER", "buckets have the exemplars that the agent has"),
    *_without(
        "OTEL_PROPAGATORS",
        "requests that are observed are followed by W3C's traceparent, and the agent makes none itself",
    ),
    *_without(
        "OTEL_TRACES_SAMPLER OTEL_TRACES_SAMPLER_ARG", "a request has a span unless its caller does not sample it"
    ),
    *_without("OTEL_ENTITIES", "resources are made of what was observed"),
    *_without(
        "OTEL_BSP_SCHEDULE_DELAY OTEL_BSP_EXPORT_TIMEOUT OTEL_BSP_MAX_QUEUE_SIZE OTEL_BSP_MAX_EXPORT_BATCH_SIZE "
        "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT OTEL_ATTRIBUTE_COUNT_LIMIT OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT "
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT OTEL_SPAN_EVENT_COUNT_LIMIT OTEL_SPAN_LINK_COUNT_LIMIT "
        "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
        _NO_SDK,
    ),
    *_without(
        "OTEL_LOGS_EXPORTER OTEL_BLRP_SCHEDULE_DELAY OTEL_BLRP_EXPORT_TIMEOUT OTEL_BLRP_MAX_QUEUE_SIZE "
        "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT "
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT OTEL_EXPORTER_OTLP_LOGS_PROTOCOL OTEL_EXPORTER_OTLP_LOGS_HEADERS "
        "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT OTEL_EXPORTER_OTLP_LOGS_COMPRESSION OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE "
        "OTEL_EXPORTER_OTLP_LOGS_CLIENT_CERTIFICATE OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY OTEL_EXPORTER_OTLP_LOGS_INSECURE",
        _NO_LOGS,
    ),
    *_without("OTEL_EXPORTER_ZIPKIN_ENDPOINT OTEL_EXPORTER_ZIPKIN_TIMEOUT", "there is no such exporter"),
    *_without(
        "OTEL_EXPORTER_OTLP_SPAN_INSECURE OTEL_EXPORTER_OTLP_METRIC_INSECURE",
        "obsolete: OTEL_EXPORTER_OTLP_TRACES_INSECURE and OTEL_EXPORTER_OTLP_METRICS_INSECURE are in their place",
    ),
)


def without_effect(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what is to be said of variables that are set for nothing."""
    for variable in VARIABLES:
        if not variable.is_honoured and environ.get(variable.name, "").strip():
            yield f"{variable.name} has no effect: {variable.does}"


def render() -> str:
    """Return docs/variables.md."""
    lines = [
        "# Variables of OpenTelemetry",
        "",
        "All that OpenTelemetry's specification has, and what they do here; written from",
        "`otel_gpu/config/otel_variables.py` by `make docs`. A value that cannot be understood is said at the start and",
        "ignored, as the specification wants it; an endpoint, a header or a file that cannot be used is an error.",
        "",
        "| variable | of one signal | what it sets |",
        "|---|---|---|",
    ]
    for one in VARIABLES:
        if one.is_honoured:
            signals = ", ".join(f"`…_{signal}_{one.name.rpartition('_OTLP_')[2]}`" for signal in one.signals)
            lines.append(f"| `{one.name}` | {signals} | {one.does} |")
    lines += [
        "",
        "## Without effect",
        "",
        "Said at the start where they are set.",
        "",
        "| variable | why |",
        "|---|---|",
    ]
    lines += [f"| `{one.name}` | {one.does} |" for one in VARIABLES if not one.is_honoured]
    return "\n".join(lines) + "\n"
