"""How is the hardware doing? Utilization, memory, temperature, power, errors and links of each GPU, by NVML.

Every value is what the driver measured; what a GPU does not support is left out, never zero.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import msgspec

from ...discovery.gpus import Gpu
from ...runtime.supervision import Health
from ...signals import hardware, self_metrics
from ...signals.metrics import (
    Attributes,
    AttributeValue,
    Instrument,
    Measurement,
    MetricSpec,
    Resource,
    SelfReading,
    attributes,
)
from ...signals.structs import Record
from .events import XidEvent, XidWatch
from .library import Device, Nvml, NvmlUnavailableError
from .readings import READINGS, Reading, pids_by_utilization, process_bytes

_LEVEL = Instrument.UPDOWNCOUNTER
_LOOK_AGAIN_NS = 60_000_000_000
"""How often MIG instances and GPUs are looked for anew."""


class _Sums(Record):
    """What each sum stood at, so that what flows is what was added."""

    before: dict[tuple[Resource, MetricSpec, Attributes], int] = msgspec.field(default_factory=dict)

    def added(self, key: tuple[Resource, MetricSpec, Attributes], value: int) -> int:
        """Return what was added since the last call; a counter starts with nothing, a level with itself."""
        metric = key[1]
        before = self.before.get(key, value if metric.instrument is Instrument.COUNTER else 0)
        self.before[key] = value
        if metric.instrument is Instrument.COUNTER and value < before:
            # The driver was reloaded or the GPU reset, and its counters with it.
            return value
        return value - before


class NvmlReceiver:
    """Asks NVML at each collection. Owned by one thread."""

    def __init__(
        self,
        resource: Resource,
        *,
        library: str | None = None,
        process_resource: Callable[[int], Resource | None] = lambda _: None,
    ) -> None:
        """`resource` is the host's; `process_resource` tells that of a pid, None for one that is not observed."""
        self._resource = resource
        self._process_resource = process_resource
        self._sums = _Sums()
        self._levels: dict[tuple[Resource, MetricSpec, Attributes], tuple[str, int]] = {}
        self._last_sample_us: dict[str, int] = {}
        self._nvml: Nvml | None = None
        self._failed_before = 0
        """Calls that failed until NVML was closed the last time."""
        self._xids: XidWatch | None = None
        self._devices: list[Device] = []
        self._looked_ns = 0
        self._library = library

    def open(self) -> None:
        """Begin to ask NVML, again after `close`; NvmlUnavailableError where it is not there, or does not answer."""
        nvml = Nvml(self._library)
        try:
            self._devices, self._looked_ns = nvml.devices(), time.monotonic_ns()
        except NvmlUnavailableError:
            nvml.close()
            raise
        self._nvml = nvml
        self._xids = XidWatch(nvml, self._devices)

    def close(self) -> None:
        """Stop listening for events and shut NVML down; idempotent."""
        if self._xids is not None:
            self._xids.close()
            self._xids = None
        if self._nvml is not None:
            self._failed_before += sum(self._nvml.failed.values())
            self._nvml.close()
            self._nvml = None

    @property
    def is_open(self) -> bool:
        """Whether NVML is asked."""
        return self._nvml is not None

    def health(self) -> list[Health]:
        """Say how the thread is that listens for events, where there is one."""
        return [] if self._xids is None or self._xids.worker is None else [self._xids.worker.health()]

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the host's GPUs with their MIG instances, by index."""
        return tuple(d.gpu for d in self._devices if not d.is_instance)

    def xid_history(self) -> tuple[XidEvent, ...]:
        """Return the latest XID events, oldest first."""
        return self._xids.history() if self._xids else ()

    def readings(self) -> Iterator[SelfReading]:
        """Yield how many calls failed, those that a GPU does not support left out."""
        failed = self._failed_before
        if (nvml := self._nvml) is not None:
            failed += sum(list(nvml.failed.values()))
        if nvml is not None or failed:
            yield SelfReading(self_metrics.EVENTS_LOST, failed, {"otel_gpu.event": "nvml_calls_failed"})

    def process_memory(self) -> dict[tuple[str, int], int]:
        """Return the bytes of GPU memory that the driver holds for each (UUID, pid)."""
        if self._nvml is None:
            return {}
        found = {}
        for device in self._owners():
            for pid, size_bytes in process_bytes(self._nvml, device).items():
                found[device.uuid, pid] = size_bytes
        return found

    def collect(self) -> list[Measurement]:
        """Return what the GPUs say now, and what they counted since the last call; what does not answer is left out.

        NvmlUnavailableError where NVML as a whole answers no more.
        """
        if self._nvml is None:
            return []
        self._nvml.count()
        found = []
        if time.monotonic_ns() - self._looked_ns > _LOOK_AGAIN_NS:
            found += self._look()
        found += [m for device in self._devices for m in self._of_device(self._nvml, device)]
        found += self._of_events()
        found += self._of_processes(self._nvml)
        return found

    def _look(self) -> list[Measurement]:
        """Find the devices; return what takes back the levels of MIG instances that are no more."""
        assert self._nvml is not None
        self._looked_ns = time.monotonic_ns()
        before = {d.uuid for d in self._devices}
        self._devices = self._nvml.devices()
        gone = before - {d.uuid for d in self._devices}
        keys = [k for k in self._sums.before if gone and dict(k[2]).get("hw.id") in gone and k not in self._levels]
        left = [(key, self._sums.before.pop(key)) for key in keys]
        return [Measurement(*key, -value) for key, value in left if value and key[1].instrument is _LEVEL]

    def _owners(self) -> list[Device]:
        """Return the devices that processes run on: instances in place of the GPU that they are parts of."""
        return [d for d in self._devices if not d.gpu.instances]

    def _of_device(self, nvml: Nvml, device: Device) -> Iterator[Measurement]:
        answered, failed = nvml.answers[device.uuid], sum(nvml.failed.values())
        for read in READINGS:
            for reading in read(nvml, device):
                yield self._measure(self._resource, device.attributes, reading)
        is_known = nvml.answers[device.uuid] > answered or sum(nvml.failed.values()) == failed
        if not device.is_instance and is_known:
            state = "failed" if device.uuid in nvml.lost else "ok"
            if state == "ok" and _is_degraded(nvml, device):
                state = "degraded"
            for one in ("ok", "degraded", "failed"):
                attrs = {"hw.type": "gpu", "hw.state": one}
                yield self._measure(
                    self._resource, device.attributes, Reading(hardware.STATUS, int(one == state), attrs)
                )

    def _measure(self, resource: Resource, shared: Mapping[str, AttributeValue], reading: Reading) -> Measurement:
        attrs = attributes({**shared, **reading.attributes})
        value: float = reading.value
        if reading.metric.instrument is not Instrument.GAUGE:
            value = self._sums.added((resource, reading.metric, attrs), reading.value)
        if reading.metric.floating:
            value *= reading.scale
        return Measurement(resource, reading.metric, attrs, value)

    def _of_events(self) -> Iterator[Measurement]:
        known = {d.uuid: d for d in self._devices}
        for (uuid, xid), count in (self._xids.counts() if self._xids else {}).items():
            if (device := known.get(uuid)) is not None:
                attrs: dict[str, AttributeValue] = {"hw.type": "gpu", "error.type": "xid", "gpu.nvml.xid": xid}
                key = (self._resource, hardware.ERRORS, attributes({**device.attributes, **attrs}))
                # Events are counted from the agent's start, so the first reading is all of them.
                self._sums.before.setdefault(key, 0)
                yield self._measure(self._resource, device.attributes, Reading(hardware.ERRORS, count, attrs))

    def _of_processes(self, nvml: Nvml) -> Iterator[Measurement]:
        levels: dict[tuple[Resource, MetricSpec, Attributes], tuple[str, int]] = {}
        for device in self._owners():
            held = process_bytes(nvml, device)
            shares = pids_by_utilization(nvml, device, self._last_sample_us)
            for pid, size_bytes in held.items():
                if (resource := self._process_resource(pid)) is None:
                    continue
                where = {"hw.id": device.uuid}
                levels[resource, hardware.PROCESS_MEMORY, attributes(where)] = (device.uuid, pid)
                yield self._measure(resource, where, Reading(hardware.PROCESS_MEMORY, size_bytes, {}))
                if shares is not None:
                    share = shares.get(pid, 0)
                    yield Measurement(resource, hardware.PROCESS_UTILIZATION, attributes(where), share)
        for key, (_, pid) in self._levels.items():
            # A process that let go of the GPU holds nothing; one that ended took its series along.
            if key not in levels and (left := self._sums.before.pop(key, 0)) and self._process_resource(pid) is key[0]:
                yield Measurement(*key, -left)
        self._levels = levels


def _is_degraded(nvml: Nvml, device: Device) -> bool:
    """Tell whether memory rows wait for a reset, or could not be remapped."""
    rows = nvml.ask(device, "nvmlDeviceGetRemappedRows")
    return rows is not None and bool(rows[2] or rows[3])
