"""How do exporters of OTLP come to be? By both of the Collector's names for each protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...bpf.needs import Check
from ...components import ExporterContext, ExporterFactory, Needs, Written
from ...signals import SIGNALS, Signal
from .endpoint import target
from .section import OtlpSection
from .settings import OtlpSettings, Protocol
from .variables import from_variables

if TYPE_CHECKING:
    from .exporter import OtlpExporter


def _create(context: ExporterContext, settings: OtlpSettings) -> OtlpExporter:
    from .exporter import OtlpExporter

    return OtlpExporter(settings, context.name)


def _resolved(protocol: Protocol | None, section: OtlpSection, written: Written) -> Mapping[Signal, OtlpSettings]:
    """Return the settings for each signal. The variables apply where no endpoint is written: credentials go where they should."""
    endpoints = section.endpoint, section.metrics_endpoint, section.traces_endpoint, section.profiles_endpoint
    found: dict[Signal, OtlpSettings] = {}
    for signal in SIGNALS:
        if any(endpoints):
            base = OtlpSettings(protocol=protocol or "grpc")
        else:
            base = from_variables(written.variables, signal, protocol)
        settings = section.settings(base, written.keys, written.where)
        key = f"{signal}_endpoint" if getattr(section, f"{signal}_endpoint") else "endpoint"
        if any(endpoints):
            settings = replace(settings, endpoint_said_by=f"{written.where}.{key}", named_by_variables=False)
        found[signal] = settings
    return found


def _check(settings: OtlpSettings, signal: Signal) -> None:
    target(settings, signal)


def _needs(settings: OtlpSettings, signal: Signal) -> Needs:
    return Needs(
        read=tuple(f for f in (settings.ca_file, settings.cert_file, settings.key_file) if f),
        endpoints=(target(settings, signal).address.partition("?")[0],),  # a query may hold a credential
    )


def _checks(component: str, settings: OtlpSettings, signal: Signal) -> Iterator[Check]:
    from .trial import tried

    yield tried(component, settings, signal)


def _factory(protocol: Protocol | None) -> ExporterFactory:
    resolve: Callable[[OtlpSection, Written], Mapping[Signal, OtlpSettings]] = partial(_resolved, protocol)
    return ExporterFactory(
        OtlpSection, _create, signals=SIGNALS, resolve=resolve, check=_check, needs=_needs, checks=_checks
    )


FACTORY = _factory(None)
"""By gRPC, where the variables do not say otherwise."""
GRPC = _factory("grpc")
HTTP = _factory("http/protobuf")
