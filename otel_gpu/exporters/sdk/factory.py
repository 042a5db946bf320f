"""How do exporters of the OpenTelemetry SDK, installed by other packages, come to be?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...components import ExporterContext, ExporterFactory, Written
from ...signals import Signal
from .section import SdkSection
from .settings import SdkSettings

if TYPE_CHECKING:
    from .exporter import SdkExporters

_SIGNALS: tuple[Signal, ...] = ("metrics", "traces")


def _create(context: ExporterContext, settings: SdkSettings) -> SdkExporters:
    from .exporter import SdkExporters

    return SdkExporters(settings, context.name, context.signals)


def _resolved(section: SdkSection, written: Written) -> Mapping[Signal, SdkSettings]:
    settings = section.settings(written.where)
    return dict.fromkeys(_SIGNALS, settings)


FACTORY = ExporterFactory(SdkSection, _create, signals=_SIGNALS, resolve=_resolved)
