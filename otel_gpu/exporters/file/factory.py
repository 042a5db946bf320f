"""How do exporters to files come to be?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...bpf.needs import Check
from ...components import ExporterContext, ExporterFactory, Needs
from ...signals import SIGNALS, Signal
from .settings import FileSettings

if TYPE_CHECKING:
    from .exporter import FileExporter


def _create(context: ExporterContext, settings: FileSettings) -> FileExporter:
    from .exporter import FileExporter

    return FileExporter(settings, context.name)


def _checks(component: str, settings: FileSettings, _signal: Signal) -> Iterator[Check]:
    from .trial import tried

    yield tried(component, settings)


FACTORY = ExporterFactory(
    FileSettings,
    _create,
    signals=SIGNALS,
    needs=lambda settings, _signal: Needs(written=(settings.path,)),
    checks=_checks,
)
