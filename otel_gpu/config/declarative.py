"""What does OpenTelemetry's declarative configuration, the file that OTEL_CONFIG_FILE names, ask for?

Of the format (open-telemetry/opentelemetry-configuration, `file_format` 1.x) `disabled`, `log_level`, `resource` and the
exporters of metrics and spans are read; what else stands there is of SDKs, and said to have no effect. As the specification
has it, other variables do not count beside it, but for those that it refers to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..components.values import parse_pairs
from ..components.variables import Variables
from ..errors import ConfigError
from ..signals import Signal
from .standard import Standard

_FORMAT = re.compile(r"1\.\d+(-rc\.\d+)?")
_LEVELS = {"trace": "debug", "debug": "debug", "info": "info", "warn": "warn", "error": "error", "fatal": "error"}
_OTHERS = ("attribute_limits", "logger_provider", "propagator", "instrumentation/development", "distribution")
_OF_METRICS = ("views", "exemplar_filter", "meter_configurator/development")
_OF_SPANS = ("limits", "sampler", "tracer_configurator/development")
_TLS = {
    "certificate_file": "ca_file",
    "client_key_file": "key_file",
    "client_certificate_file": "cert_file",
    "insecure": "insecure",
}
_TEMPORALITIES = {"cumulative": "cumulative", "delta": "delta", "low_memory": "delta"}
_HISTOGRAMS = {"explicit_bucket_histogram": "explicit", "base2_exponential_bucket_histogram": "exponential"}
_NO_LIMIT_MS = 86_400_000
_MAX_EXPORTERS = 100


class _Environment(dict[str, str]):
    """Variables that a file refers to; one that is not set is empty there."""

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, "" if default is None else default)


def from_file(path: str, environ: Mapping[str, str]) -> Standard:
    """Read the file; ConfigError names the key that is wrong."""
    from .file import read  # here, because it imports YAML

    return _Reading(path, read(path, _Environment(environ))).standard()


class _Reading:
    """One file as it is read."""

    def __init__(self, path: str, contents: Mapping[str, object]) -> None:
        self._path = path
        self._contents = contents
        self._exporters: dict[str, tuple[str, object]] = {}
        self._of_signal: dict[Signal, tuple[str, ...]] = {}
        self._notices: list[str] = []

    def standard(self) -> Standard:
        found = str(self._contents.get("file_format"))
        if not _FORMAT.fullmatch(found):
            raise ConfigError(f'{self._path}: file_format: {found[:20]!r} is not known; "1.0" is')
        for key in _OTHERS:
            self._without_effect(self._contents, key, "")
        interval_s = self._metrics()
        self._spans()
        # The format has no profiles, and over HTTP an endpoint is one signal's.
        profiles = tuple(one for one in self._of_signal["metrics"] if one.startswith("otlp_grpc"))
        return Standard(
            disabled=self._value(self._contents, "disabled", bool, "") or False,
            interval_s=interval_s,
            log_level=self._log_level(),
            resource_attributes=self._resource(),
            exporters=self._exporters,
            usual_exporters={**self._of_signal, "profiles": profiles},
            variables=Variables({}),
            notices=tuple(self._notices),
        )

    def _log_level(self) -> str | None:
        text = self._value(self._contents, "log_level", str, "")
        if text is None:
            return None
        level = _LEVELS.get(text.rstrip("1234"))
        if level is None:
            raise ConfigError(f"{self._path}: log_level: {text[:20]!r} is not known; write debug, info, warn or error")
        return level

    def _resource(self) -> tuple[tuple[str, str], ...]:
        resource = self._section(self._contents, "resource", "")
        self._without_effect(resource, "detection/development", "resource.")
        found = dict(parse_pairs(self._value(resource, "attributes_list", str, "resource.") or "", self._path))
        for where, one in self._listed(resource, "attributes", "resource."):
            value = one.get("value")
            if isinstance(value, list | dict):
                self._notices.append(f"{self._path}: {where}value has no effect: resources here have no lists")
            elif value is not None:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                found[self._required(one, "name", where)] = text
        return tuple(found.items())

    def _metrics(self) -> float | None:
        provider = self._section(self._contents, "meter_provider", "")
        for key in _OF_METRICS:
            self._without_effect(provider, key, "meter_provider.")
        ids: list[str] = []
        intervals = []
        for where, reader in self._listed(provider, "readers", "meter_provider."):
            pull = self._section(reader, "pull", where)
            ids += self._exporter(pull, "metrics", f"{where}pull.")
            periodic = self._section(reader, "periodic", where)
            if (interval := self._value(periodic, "interval", int, f"{where}periodic.")) is not None:
                intervals.append(max(interval, 1) / 1000)
            ids += self._exporter(periodic, "metrics", f"{where}periodic.")
        self._of_signal["metrics"] = tuple(ids)
        if len(set(intervals)) > 1:
            self._notices.append(f"{self._path}: meter_provider: all readers have the shortest of their intervals")
        return min(intervals, default=None)

    def _spans(self) -> None:
        provider = self._section(self._contents, "tracer_provider", "")
        for key in _OF_SPANS:
            self._without_effect(provider, key, "tracer_provider.")
        ids: list[str] = []
        for where, processor in self._listed(provider, "processors", "tracer_provider."):
            for kind in ("batch", "simple"):
                ids += self._exporter(self._section(processor, kind, where), "traces", f"{where}{kind}.")
        self._of_signal["traces"] = tuple(ids)

    def _exporter(self, holder: Mapping[str, object], signal: Signal, where: str) -> Iterator[str]:
        """Yield the id of the exporter that stands below a reader or a processor."""
        exporter = self._section(holder, "exporter", where)
        for kind in exporter:
            place = f"{where}exporter."
            section = self._section(exporter, kind, place)
            if kind in ("otlp_http", "otlp_grpc"):
                settings: object = self._otlp(section, signal, kind, f"{place}{kind}.")
            elif kind == "prometheus/development":
                host, port = section.get("host") or "localhost", section.get("port") or 9464
                settings = {"endpoint": f"{host}:{port}"}
            elif kind == "console":
                settings = None
            else:
                self._notices.append(f"{self._path}: {place}{kind} has no effect: there is no such exporter here")
                continue
            if len(self._exporters) >= _MAX_EXPORTERS:
                raise ConfigError(f"{self._path}: more than {_MAX_EXPORTERS} exporters are not believable")
            component = f"{kind.partition('/')[0]}/{signal}{len(self._exporters) or ''}"
            self._exporters[component] = f"{self._path}: {place}{kind}", settings
            yield component

    def _otlp(self, section: Mapping[str, object], signal: Signal, kind: str, where: str) -> dict[str, object]:
        """Return the settings as they would stand in the agent's own file."""
        default = "http://localhost:4317" if kind == "otlp_grpc" else f"http://localhost:4318/v1/{signal}"
        timeout_ms = self._value(section, "timeout", int, where)
        found: dict[str, object] = {
            "endpoint" if kind == "otlp_grpc" else f"{signal}_endpoint": section.get("endpoint") or default,
            "compression": section.get("compression") or "none",
            "headers": self._headers(section, where),
            "timeout": f"{10_000 if timeout_ms is None else timeout_ms or _NO_LIMIT_MS}ms",
        }
        if tls := self._section(section, "tls", where):
            found["tls"] = {_TLS[key]: value for key, value in tls.items() if key in _TLS}
        if (encoding := section.get("encoding")) is not None:
            found["encoding"] = "proto" if encoding == "protobuf" else encoding
        if (temporality := section.get("temporality_preference")) is not None:
            found["temporality"] = _TEMPORALITIES.get(str(temporality), temporality)
        if (aggregation := section.get("default_histogram_aggregation")) is not None:
            found["histograms"] = _HISTOGRAMS.get(str(aggregation), aggregation)
        return found

    def _headers(self, section: Mapping[str, object], where: str) -> dict[str, str]:
        place = f"{self._path}: {where}headers_list"
        found = dict(parse_pairs(self._value(section, "headers_list", str, where) or "", place))
        for at, one in self._listed(section, "headers", where):
            if one.get("value") is not None:
                found[self._required(one, "name", at)] = str(one["value"])
        return found

    def _required(self, section: Mapping[str, object], key: str, where: str) -> str:
        value = section.get(key)
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{self._path}: {where}{key}: it is required, and text")
        return value

    def _section(self, holder: Mapping[str, object], key: str, where: str) -> Mapping[str, object]:
        value = holder.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ConfigError(f"{self._path}: {where}{key}: expected keys and values")
        return value

    def _listed(self, holder: Mapping[str, object], key: str, where: str) -> Iterator[tuple[str, Mapping[str, object]]]:
        """Yield each section of a list with its place."""
        value = holder.get(key)
        if value is not None and not isinstance(value, list):
            raise ConfigError(f"{self._path}: {where}{key}: expected a list")
        for i, one in enumerate(value or ()):
            if not isinstance(one, dict):
                raise ConfigError(f"{self._path}: {where}{key}[{i}]: expected keys and values")
            yield f"{where}{key}[{i}].", one

    def _value(self, holder: Mapping[str, object], key: str, kind: type[Any], where: str) -> Any:
        """Return a value of a kind; what stands for a variable is text, and read as what it says."""
        value = holder.get(key)
        if value is None or value == "":
            return None
        if kind is int and isinstance(value, str) and value.isascii() and value.isdigit():
            return int(value[:20])
        if kind is bool and value in ("true", "false"):
            return value == "true"
        if not isinstance(value, kind) or (kind is int and (isinstance(value, bool) or value < 0)):
            what = {bool: "true or false", int: "a number of milliseconds"}.get(kind, "text")
            raise ConfigError(f"{self._path}: {where}{key}: expected {what}")
        return value

    def _without_effect(self, holder: Mapping[str, object], key: str, where: str) -> None:
        if holder.get(key) is not None:
            self._notices.append(f"{self._path}: {where}{key} has no effect on the agent")
