"""How much GPU memory does a process use that nobody saw being allocated? The driver's figure less what was seen.

What is left is the context itself, the driver's rounding, what a pool or allocator of the driver keeps in reserve, managed
memory that lies on the GPU, and whatever was allocated before the probes were there.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from ..components import Processor
from ..signals import cuda, hardware
from ..signals.metrics import Attributes, Measurement, Resource, attributes
from .devices import HARDWARE_ID, INDEX, MODEL, UUID, identified

_ON_THE_GPU = ("device", "async", "virtual")
"""Types of memory that the driver counts for the process; managed memory moves, and is on the GPU in part."""


class UntrackedMemory(Processor):
    """Follows the usage that both receivers tell, and adds the difference when NVML has spoken."""

    def __init__(self) -> None:
        self._tracked: dict[Resource, dict[str | None, int]] = {}
        self._held: dict[Resource, dict[str, int]] = {}
        self._devices: dict[Resource, dict[str, Attributes]] = {}

    def metrics(self, measurements: list[Measurement]) -> list[Measurement]:
        """Return the measurements, and the untracked memory of the processes that NVML told of."""
        told: set[tuple[Resource, str]] = set()
        silent: set[tuple[Resource, str]] = set()
        for m in measurements:
            if m.metric is cuda.MEMORY_USAGE:
                self._note_tracked(m)
            elif m.metric is hardware.PROCESS_MEMORY:
                uuid = str(dict(m.attributes)["hw.id"])
                told.add((m.resource, uuid))
                if m.value is None:
                    silent.add((m.resource, uuid))
                    continue
                silent.discard((m.resource, uuid))
                assert isinstance(m.value, int)
                held = self._held.setdefault(m.resource, {})
                held[uuid] = held.get(uuid, 0) + m.value
        return measurements + [
            replace(found, value=None) if (resource, uuid) in silent else found
            for resource, uuid in sorted(told, key=str)
            for found in self._untracked(resource, uuid)
        ]

    def forget(self, resource: Resource) -> None:
        """Drop what is remembered of a process that has ended."""
        for table in (self._tracked, self._held, self._devices):
            table.pop(resource, None)

    def _note_tracked(self, m: Measurement) -> None:
        known = dict(m.attributes)
        if known.get("cuda.memory.type") not in _ON_THE_GPU:
            return
        assert isinstance(m.value, int)
        key = None if (uuid := known.get(HARDWARE_ID)) is None else str(uuid)
        self._tracked.setdefault(m.resource, defaultdict(int))[key] += m.value
        if key is not None:
            device = attributes({name: known.get(name) for name in (INDEX, MODEL, UUID, HARDWARE_ID)})
            self._devices.setdefault(m.resource, {})[key] = device

    def _untracked(self, resource: Resource, uuid: str) -> list[Measurement]:
        tracked = self._tracked.get(resource, {})
        if tracked.get(None):
            # Memory on a device that nobody knows: of which one's usage should it be taken off?
            return []
        attrs = self._devices.get(resource, {}).get(uuid) or attributes(identified(uuid))
        size_bytes = self._held.get(resource, {}).get(uuid, 0) - tracked.get(uuid, 0)
        return [Measurement(resource, cuda.MEMORY_UNTRACKED, attrs, size_bytes)]
