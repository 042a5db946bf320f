"""Which factory does the id of a component name?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..components import registry
from ..components.values import nearest
from ..errors import ConfigError
from ..signals import Signal
from .settings import component_type

if TYPE_CHECKING:
    from ..components import ExporterFactory, ProcessorFactory, ReceiverFactory, Written


def receiver_factory(component: str) -> ReceiverFactory:
    """Return the factory of a receiver; ConfigError where there is none."""
    factory = registry.find("receivers", component_type(component))
    if factory is None:
        raise _unknown(component, "receivers")
    return factory


def processor_factory(component: str) -> ProcessorFactory:
    """Return the factory of a processor; ConfigError where there is none."""
    factory = registry.find("processors", component_type(component))
    if factory is None:
        raise _unknown(component, "processors")
    return factory


def exporter_factory(component: str) -> ExporterFactory:
    """Return the factory of an exporter; ConfigError where there is none."""
    factory = registry.find("exporters", component_type(component))
    if factory is None:
        raise _unknown(component, "exporters")
    return factory


def exporter_settings(component: str, settings: object, written: Written) -> Mapping[Signal, object]:
    """Return what an exporter gets for each signal, of settings as they are written."""
    factory = exporter_factory(component)
    if factory.resolve is None:
        return dict.fromkeys(factory.signals, settings)
    return factory.resolve(settings, written)


def _unknown(component: str, kind: registry.Kind) -> ConfigError:
    near = nearest(component_type(component), registry.names(kind))
    return ConfigError(f"{kind}.{component}: there is no such component; {near}")
