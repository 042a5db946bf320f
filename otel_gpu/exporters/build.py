"""Which exporters does the configuration ask for? Each is imported only when it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConfigError
from .settings import ConsoleSettings, FileSettings, OtlpSettings, SdkSettings

if TYPE_CHECKING:
    from ..config import Config
    from . import MetricsExporter


def build(config: Config) -> list[MetricsExporter]:
    """Make the exporters of the metrics pipelines; ConfigError where one cannot be."""
    wanted = dict.fromkeys(
        component
        for pipeline_id, pipeline in config.pipelines.items()
        if pipeline_id.partition("/")[0] == "metrics"
        for component in pipeline.exporters
    )
    return [_build(config.exporter(component, "metrics"), component) for component in wanted]


def _build(settings: object, name: str) -> MetricsExporter:
    match settings:
        case OtlpSettings():
            from .otlp import OtlpExporter

            return OtlpExporter(settings, name)
        case FileSettings():
            from .file import FileExporter

            return FileExporter(settings, name)
        case ConsoleSettings():
            from .console import ConsoleExporter

            return ConsoleExporter(settings, name)
        case SdkSettings():
            from .sdk import SdkExporter

            return SdkExporter(settings, name)
    raise ConfigError(f"exporters.{name}: nothing is known about exporters of this type")
