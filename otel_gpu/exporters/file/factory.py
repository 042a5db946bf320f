"""How do exporters to files come to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components import ExporterContext, ExporterFactory, Needs
from ...signals import SIGNALS
from .settings import FileSettings

if TYPE_CHECKING:
    from .exporter import FileExporter


def _create(context: ExporterContext, settings: FileSettings) -> FileExporter:
    from .exporter import FileExporter

    return FileExporter(settings, context.name)


FACTORY = ExporterFactory(
    FileSettings, _create, signals=SIGNALS, needs=lambda settings, _signal: Needs(written=(settings.path,))
)
