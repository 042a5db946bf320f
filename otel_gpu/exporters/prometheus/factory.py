"""How do exporters for Prometheus come to be?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...components import ExporterContext, ExporterFactory, Needs, Written
from ...components.values import parse_endpoint
from ...errors import ConfigError
from ...signals import Signal
from .settings import PrometheusSettings

if TYPE_CHECKING:
    from .exporter import PrometheusExporter

_PORTS = range(1, 65536)


def _create(context: ExporterContext, settings: PrometheusSettings) -> PrometheusExporter:
    try:
        from .exporter import PrometheusExporter
    except ModuleNotFoundError as e:
        raise ConfigError(f"the Python package {e.name} is missing; pip install 'otel-gpu[prometheus]'") from e

    return PrometheusExporter(settings, context.name)


def _resolved(settings: PrometheusSettings, written: Written) -> Mapping[Signal, PrometheusSettings]:
    """Take what the variables say of an endpoint that is not written."""
    if "endpoint" not in written.keys:
        host, port = parse_endpoint(settings.endpoint, settings.endpoint)
        host = written.variables.host("OTEL_EXPORTER_PROMETHEUS_HOST") or host
        port = written.variables.number("OTEL_EXPORTER_PROMETHEUS_PORT", _PORTS) or port
        settings = replace(settings, endpoint=f"{host}:{port}")
    return {"metrics": settings}


FACTORY = ExporterFactory(
    PrometheusSettings,
    _create,
    resolve=_resolved,
    needs=lambda settings, _signal: Needs(listens=(settings.endpoint,)),
)
