"""What do all components that a configuration uses need of the host?"""

from __future__ import annotations

from collections.abc import Iterator

from ..needs import Check, Needs
from ..signals import SIGNALS
from .factories import exporter_factory, processor_factory, receiver_factory
from .model import Config
from .settings import component_type


def needs(config: Config) -> Iterator[tuple[str, Needs]]:
    """Yield what each component of a pipeline needs, by its kind and id; of exporters once for each signal."""
    for component, settings in config.used_receivers.items():
        yield f"receivers.{component}", receiver_factory(component).needs(settings)
    for signal in SIGNALS:
        pipelines = config.pipelines_of(signal)
        for component in dict.fromkeys(p for pipeline in pipelines for p in pipeline.processors):
            yield f"processors.{component}", processor_factory(component).needs(config.processors[component])
        for component in dict.fromkeys(e for pipeline in pipelines for e in pipeline.exporters):
            factory = exporter_factory(component)
            yield f"exporters.{component}", factory.needs(config.exporter(component, signal), signal)


def places_probes(config: Config) -> bool:
    """Say whether any receiver loads programs into the kernel."""
    return any(receiver_factory(component).places_probes for component in config.used_receivers)


def checks(config: Config) -> Iterator[Check]:
    """Yield what receivers themselves look at on the host, once for each type."""
    for kind in dict.fromkeys(map(component_type, config.used_receivers)):
        yield from receiver_factory(kind).checks()
