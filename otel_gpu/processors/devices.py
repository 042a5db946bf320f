"""Which GPU was it? Measurements that know only a device's ordinal, or nothing of the only device, get its UUID and model.

The UUID is there twice, as OBI writes it and as series of hardware have it, so that these two can be joined.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import compress
from typing import Protocol

from ..components import Processor
from ..discovery.gpus import Gpu, Ordinals, ProcessDevices
from ..signals.metrics import Attributes, AttributeValue, Measurement, Resource, attributes

INDEX, MODEL, UUID = "cuda.device.index", "cuda.device.model", "cuda.device.uuid"
HARDWARE_ID = "hw.id"


class DeviceSource(Protocol):
    """Who knows the devices of processes."""

    def devices(self, resource: Resource) -> ProcessDevices | None:
        """Return what is known of a process's devices; None where it is nothing."""


class DeviceNames(Processor):
    """Adds UUID and model to measurements that know only a device's ordinal, or nothing of the only device."""

    def __init__(self, source: DeviceSource) -> None:
        self._source = source
        self._ordinals: dict[Resource, Ordinals] = {}
        self._names: dict[Resource, tuple[ProcessDevices, dict[Attributes, Attributes]]] = {}

    def metrics(self, measurements: list[Measurement]) -> list[Measurement]:
        """Return the measurements, those of device metrics completed where the GPU is known."""
        wanted = [INDEX in m.metric.attributes for m in measurements]
        used: dict[Resource, set[int]] = {}
        for m in compress(measurements, wanted):
            ordinals = used.setdefault(m.resource, set())
            if isinstance(ordinal := dict(m.attributes).get(INDEX), int):
                ordinals.add(ordinal)
        known = {resource: self._known(resource, ordinals) for resource, ordinals in used.items()}
        return [self._named(m, known[m.resource]) if w else m for m, w in zip(measurements, wanted)]

    def forget(self, resource: Resource) -> None:
        """Drop the devices of a process that has ended."""
        self._names.pop(resource, None)
        self._ordinals.pop(resource, None)

    def _known(
        self, resource: Resource, ordinals: Collection[int]
    ) -> tuple[ProcessDevices, dict[Attributes, Attributes]] | None:
        """Return what is known of a process, and the attribute sets made of that before."""
        devices = self._source.devices(resource)
        if devices is None:
            return None
        used = self._ordinals.setdefault(resource, Ordinals()).take(devices, ordinals)
        devices = replace(devices, by_ordinal=used)
        known = self._names.get(resource)
        if known is None or known[0] != devices:
            known = self._names[resource] = (devices, {})
        return known

    def _named(
        self, measurement: Measurement, known: tuple[ProcessDevices, dict[Attributes, Attributes]] | None
    ) -> Measurement:
        if known is None:
            return measurement
        devices, names = known
        if (attrs := names.get(measurement.attributes)) is None:
            attrs = names[measurement.attributes] = _completed(measurement.attributes, devices)
        return replace(measurement, attributes=attrs)


def _completed(attrs: Attributes, devices: ProcessDevices) -> Attributes:
    known = dict(attrs)
    ordinal = known.get(INDEX)
    if UUID in known:
        return attrs
    if isinstance(ordinal, int):
        gpu = devices.by_ordinal.get(ordinal)
        return attrs if gpu is None else attributes({**known, **_description(gpu)})
    if devices.only is None:
        return attrs
    ordinal, gpu = devices.only
    return attributes({**known, INDEX: ordinal, **_description(gpu)})


def identified(uuid: str) -> dict[str, AttributeValue | None]:
    """Return the attributes that tell a GPU from all others: OBI writes its UUID without the prefix, DCGM with it."""
    return {UUID: uuid.removeprefix("GPU-"), HARDWARE_ID: uuid}


def _description(gpu: Gpu) -> dict[str, AttributeValue | None]:
    return {**identified(gpu.uuid), MODEL: gpu.model or None}
