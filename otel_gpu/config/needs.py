"""What do all components that a configuration uses need of the host?"""

from __future__ import annotations

from collections.abc import Iterator

from ..bpf.needs import Check, Needs, checks_nothing
from ..signals import SIGNALS, Signal
from .factories import exporter_factory, processor_factory, receiver_factory
from .model import Config
from .settings import component_type


def needs(config: Config) -> Iterator[tuple[str, Needs]]:
    """Yield what each component of a pipeline needs, by its kind and id; of exporters once for each signal."""
    if config.needs_pods:
        yield "discovery.kubernetes", config.discovery.kubernetes.needs()
    for component, settings in config.used_receivers.items():
        yield f"receivers.{component}", receiver_factory(component).needs(settings)
    for signal in SIGNALS:
        pipelines = config.pipelines_of(signal)
        for component in dict.fromkeys(p for pipeline in pipelines for p in pipeline.processors):
            yield f"processors.{component}", processor_factory(component).needs(config.processors[component])
    for component, signal in _exporters(config):
        settings = config.exporter(component, signal)
        yield f"exporters.{component}", exporter_factory(component).needs(settings, signal)


def places_probes(config: Config) -> bool:
    """Say whether any receiver loads programs into the kernel."""
    return any(receiver_factory(component).places_probes for component in config.used_receivers)


def checks(config: Config) -> Iterator[Check]:
    """Yield what receivers themselves look at on the host, once for each type."""
    for kind in dict.fromkeys(map(component_type, config.used_receivers)):
        yield from receiver_factory(kind).checks()


def exporter_checks(config: Config) -> Iterator[Check]:
    """Yield what is tried of each exporter that a pipeline names, once for each signal that it is to carry."""
    told = set()
    for component, signal in _exporters(config):
        for check in exporter_factory(component).checks(component, config.exporter(component, signal), signal):
            if check not in told:
                told.add(check)
                yield check


def endpoints(config: Config) -> Iterator[tuple[str, str]]:
    """Yield where components connect to, by kind and id, but for exporters that try it themselves; each place once."""
    itself = {f"exporters.{e}" for e in config.exporters if exporter_factory(e).checks is not checks_nothing}
    places = ((component, where) for component, found in needs(config) for where in found.endpoints)
    yield from dict.fromkeys(place for place in places if place[0] not in itself)


def _exporters(config: Config) -> Iterator[tuple[str, Signal]]:
    """Yield the id of each exporter that a pipeline names, with each signal that it is to carry."""
    for signal in SIGNALS:
        for component in dict.fromkeys(e for pipeline in config.pipelines_of(signal) for e in pipeline.exporters):
            yield component, signal
