"""What shape must a configuration section have? Checked against frozen dataclasses, key by key.

A class declares a section; `parse()` turns the mapping that stood in the file into one of its values, and
says for a key that does not exist which one is nearest.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar

import msgspec

from ..errors import ConfigError
from ..exporters.delivery.settings import RetrySettings
from ..exporters.otlp.settings import Compression, OtlpSettings
from ..exporters.sdk.settings import SdkSettings
from ..exporters.settings import MAX_REQUEST_BYTES, Temporality
from .values import Duration, nearest, parse_duration

_Section = TypeVar("_Section")
_KINDS = {str: "text", list: "a list", bool: "true or false", int: "a number", float: "a number"}
_AT = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)


def parse(schema: type[_Section], data: object, where: str) -> _Section:
    """Make a `schema` of what stands at `where`; nothing there (null) means all defaults."""
    cleaned = _checked(schema, data, where)
    try:
        # Not strict: what ${env:…} gave is text, whatever type the key has.
        return msgspec.convert(cleaned, schema, strict=False)
    except msgspec.ValidationError as e:
        found = _AT.fullmatch(str(e))
        assert found
        what = found["what"].replace("`", "")
        path = _join(where, (found["path"] or "").removeprefix("."))
        raise ConfigError(f"{path}: {what[:1].lower()}{what[1:]}") from None


def _join(where: str, key: object) -> str:
    """Return the path of a key; a `where` that ends in a blank or is empty is the top of the file."""
    return f"{where}{key}" if not where or where.endswith(" ") or not key else f"{where}.{key}"


@functools.cache
def _hints(schema: type) -> Mapping[str, object]:
    return typing.get_type_hints(schema)


def _section_of(hint: object) -> type | None:
    """Return the dataclass that a key holds, or may hold."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return next((k for k in kinds if isinstance(k, type) and dataclasses.is_dataclass(k)), None)


def _checked(schema: type, data: object, where: str) -> dict[str, object]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: expected keys and values, found {_KINDS.get(type(data), 'a value')}")
    hints = _hints(schema)
    cleaned: dict[str, object] = {}
    for key, value in data.items():
        if key not in hints:
            raise ConfigError(f"{_join(where, key)}: there is no such key; {nearest(str(key), hints)}")
        hint = hints[key]
        section = _section_of(hint)
        if section is not None:
            # Also where it may be left out: a section that is there, with nothing in it, has its defaults.
            cleaned[key] = _checked(section, value, _join(where, key))
        elif value is False and "off" in typing.get_args(hint):
            # YAML 1.1 takes the word for a boolean.
            cleaned[key] = "off"
        elif value is not None or type(None) in typing.get_args(hint):
            cleaned[key] = value
    return cleaned


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
class SdkQueueSection:
    """`sending_queue:` of `sdk:`, short because what waits there is Python objects."""

    queue_size: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 10


@dataclass(frozen=True, slots=True)
class OtlpSection:
    """`otlp:` and `otlp_http:` as the Collector has them, and `temporality`."""

    endpoint: str | None = None
    metrics_endpoint: str | None = None
    traces_endpoint: str | None = None
    profiles_endpoint: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    compression: Compression = "gzip"
    timeout: Duration = "10s"
    tls: TlsSection = field(default_factory=TlsSection)
    retry_on_failure: RetrySection = field(default_factory=RetrySection)
    sending_queue: QueueSection = field(default_factory=QueueSection)
    temporality: Temporality = "cumulative"
    max_request_bytes: Annotated[int, msgspec.Meta(ge=4096, le=64 << 20)] = MAX_REQUEST_BYTES

    def settings(self, base: OtlpSettings, given: frozenset[str], where: str) -> OtlpSettings:
        """Return the exporter's settings: the keys that were `given`, on top of `base`."""
        retry = self.retry_on_failure
        tls = self.tls
        values: dict[str, object] = {
            "headers": tuple(self.headers.items()),
            "compression": self.compression,
            "timeout_s": parse_duration(self.timeout, f"{where}.timeout"),
            "temporality": self.temporality,
        }
        values = {k: v for k, v in values.items() if k.removesuffix("_s") in given}
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


@dataclass(frozen=True, slots=True)
class SdkSection:
    """`sdk:`, an exporter of the OpenTelemetry SDK that another package installed."""

    exporter: str
    timeout: Duration = "10s"
    sending_queue: SdkQueueSection = field(default_factory=SdkQueueSection)

    def settings(self, where: str) -> SdkSettings:
        """Return the exporter's settings."""
        return SdkSettings(
            self.exporter, parse_duration(self.timeout, f"{where}.timeout"), self.sending_queue.queue_size
        )


@dataclass(frozen=True, slots=True)
class PipelineSection:
    """One of `service.pipelines`."""

    receivers: tuple[str, ...] = ()
    processors: tuple[str, ...] = ()
    exporters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogsSection:
    """`service.telemetry.logs`."""

    level: Literal["debug", "info", "warn", "error"] | None = None


@dataclass(frozen=True, slots=True)
class TelemetrySection:
    """`service.telemetry`."""

    logs: LogsSection = field(default_factory=LogsSection)


@dataclass(frozen=True, slots=True)
class ServiceSection:
    """`service`."""

    extensions: tuple[str, ...] = ()
    pipelines: dict[str, object] = field(default_factory=dict)
    telemetry: TelemetrySection = field(default_factory=TelemetrySection)
    interval: Duration | None = None


@dataclass(frozen=True, slots=True)
class FileSection:
    """The whole file; components are parsed by their own type."""

    receivers: dict[str, object] | None = None
    processors: dict[str, object] | None = None
    exporters: dict[str, object] | None = None
    extensions: dict[str, object] = field(default_factory=dict)
    discovery: dict[str, object] | None = None
    service: ServiceSection = field(default_factory=ServiceSection)
