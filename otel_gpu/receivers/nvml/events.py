"""Which XID events did the GPUs raise? A thread that waits in NVML, a history, and counts.

An XID is how NVIDIA's driver reports that a GPU or a program on it went wrong; it is told once, to whoever waits.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import Counter, deque
from typing import Any

from ...runtime.supervision import Worker
from ...signals.structs import Frozen
from .library import Device, Nvml

_WAIT_MS = 500
_CLOSE_S = 2.0
_HISTORY = 256
_WHOLE_GPU = 0xFFFFFFFF


class XidEvent(Frozen):
    """One XID, with the Unix time at which it was heard of."""

    time_ns: int
    uuid: str
    xid: int
    gpu_instance: int | None
    """The MIG GPU instance, None for the whole GPU."""


class XidWatch:
    """Listens from construction to close. Counts and history may be read by any thread."""

    def __init__(self, nvml: Nvml, devices: list[Device]) -> None:
        self._nvml = nvml
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, int]] = Counter()
        self._history: deque[XidEvent] = deque(maxlen=_HISTORY)
        self.worker: Worker | None = None
        """None where there is nothing to listen to."""
        # A lost GPU, the worst of XIDs, no longer tells its UUID, so handles are told apart by value.
        self._uuids: dict[int, str] = {}
        api = nvml.api
        wanted = api.nvmlEventTypeXidCriticalError
        self._events: Any = None
        for device in devices:
            supported = nvml.ask(device, "nvmlDeviceGetSupportedEventTypes") or 0
            if device.is_instance or not supported & wanted:
                continue
            try:
                self._events = self._events or api.nvmlEventSetCreate()
                api.nvmlDeviceRegisterEvents(device.handle, wanted, self._events)
            except api.NVMLError:
                nvml.failed["nvmlDeviceRegisterEvents"] += 1
                continue
            self._uuids[_value(device.handle)] = device.uuid
        if self._uuids:
            self.worker = Worker("xid", self._listen)
            self.worker.start()

    def counts(self) -> Counter[tuple[str, int]]:
        """Return how many events of each (UUID, XID) there were so far."""
        with self._lock:
            return self._counts.copy()

    def history(self) -> tuple[XidEvent, ...]:
        """Return the latest events, oldest first."""
        with self._lock:
            return tuple(self._history)

    def close(self) -> None:
        """Stop listening; idempotent, takes up to half a second, or two where the driver hangs."""
        if self.worker is not None and not self.worker.stop(_CLOSE_S):
            return
        if self._events is not None:
            self._nvml.api.nvmlEventSetFree(self._events)
            self._events = None

    def _listen(self) -> float:
        api = self._nvml.api
        try:
            event = api.nvmlEventSetWait_v2(self._events, _WAIT_MS)
        except api.NVMLError as e:
            if e.value == api.NVML_ERROR_TIMEOUT:
                return 0.0
            self._nvml.failed["nvmlEventSetWait"] += 1
            # A GPU that has fallen off the bus makes the wait fail at once.
            return _WAIT_MS / 1000
        uuid = self._uuids.get(_value(event.device), "")
        instance = None if event.gpuInstanceId == _WHOLE_GPU else int(event.gpuInstanceId)
        heard = XidEvent(time.time_ns(), uuid, int(event.eventData), instance)
        with self._lock:
            self._counts[uuid, heard.xid] += 1
            self._history.append(heard)
        return 0.0


def _value(handle: Any) -> int:
    """Return the pointer in a device handle."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
