"""How do exporters to the console come to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...components import ExporterContext, ExporterFactory
from .settings import ConsoleSettings

if TYPE_CHECKING:
    from .exporter import ConsoleExporter


def _create(context: ExporterContext, settings: ConsoleSettings) -> ConsoleExporter:
    from .exporter import ConsoleExporter

    return ConsoleExporter(settings, context.name)


FACTORY = ExporterFactory(ConsoleSettings, _create, signals=("metrics", "traces"))
