"""What is the UUID of the AMD GPU that a measurement is about?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from ..components import Processor
from ..signals.hip import DEVICE_INDEX, DEVICE_UUID
from ..signals.metrics import Measurement, Resource, attributes


class HipDeviceSource(Protocol):
    """Who knows the devices of processes."""

    def uuids(self, resource: Resource) -> Mapping[int, str]:
        """Return the UUIDs of a process's devices by ordinal, as far as they are known."""

    def forget(self, resource: Resource) -> None:
        """Drop a process that has ended."""


class HipDeviceNames(Processor):
    """Adds the UUID to measurements that know a device's ordinal."""

    def __init__(self, source: HipDeviceSource) -> None:
        self._source = source

    def metrics(self, measurements: list[Measurement]) -> list[Measurement]:
        """Return the measurements, those of HIP's devices completed where the GPU is known."""
        resources = {m.resource for m in measurements if DEVICE_INDEX in m.metric.attributes}
        known = {resource: self._source.uuids(resource) for resource in resources}
        return [self._named(m, known[m.resource]) if DEVICE_INDEX in m.metric.attributes else m for m in measurements]

    def forget(self, resource: Resource) -> None:
        """Drop the devices of a process that has ended."""
        self._source.forget(resource)

    def _named(self, measurement: Measurement, uuids: Mapping[int, str]) -> Measurement:
        known = dict(measurement.attributes)
        ordinal = known.get(DEVICE_INDEX)
        uuid = uuids.get(ordinal) if isinstance(ordinal, int) else None
        if uuid is None:
            return measurement
        # AMD's tools write it with the prefix, as NVIDIA's do.
        named = attributes({**known, DEVICE_UUID: uuid, "hw.id": f"GPU-{uuid}"})
        return replace(measurement, attributes=named)
