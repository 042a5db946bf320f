"""What can be asked of this host's GPUs? NVML, loaded where NVIDIA's driver is, and what each GPU answers.

nvidia-ml-py is imported only once the library is there. GPUs differ in what they support: a call that one of them
refuses for good is remembered and not made again.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ...discovery.drivers import driver_directories
from ...discovery.gpus import Gpu
from ...errors import OtelGpuError
from ...signals.metrics import AttributeValue

LIBRARY = "libnvidia-ml.so.1"
_MAX_GPUS = 256
_MAX_INSTANCES = 64


class NvmlUnavailableError(OtelGpuError):
    """NVML cannot be used on this host now."""


class NvmlMissingError(NvmlUnavailableError):
    """NVML is not installed on this host, which has no GPU of NVIDIA's, or not yet."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU or a MIG instance, with the attributes that all its series carry."""

    handle: Any = field(compare=False)
    gpu: Gpu
    attributes: dict[str, AttributeValue] = field(compare=False)

    @property
    def uuid(self) -> str:
        return self.gpu.uuid

    @property
    def is_instance(self) -> bool:
        return "hw.parent" in self.attributes


class Nvml:
    """The library, initialised. Close it when done; one owner."""

    def __init__(self, library: str | None = None) -> None:
        """Load NVML, from the file `library` where given; raises NvmlUnavailableError with the reason."""
        try:
            # A library with the same SONAME that is loaded already is what nvidia-ml-py then finds.
            self._library = _loaded(library)
        except OSError as e:
            raise NvmlMissingError(f"NVML is not on this host ({e}): hardware metrics need NVIDIA's driver") from e
        try:
            self._api: Any = importlib.import_module("pynvml")
        except ImportError as e:
            raise NvmlMissingError("nvidia-ml-py is not installed: pip install nvidia-ml-py") from e
        try:
            self._api.nvmlInit()
        except self._api.NVMLError as e:
            raise NvmlUnavailableError(f"NVML does not start ({e}): is the driver loaded, and of one version?") from e
        api = self._api
        self._never = {
            api.NVML_ERROR_NOT_SUPPORTED,
            api.NVML_ERROR_FUNCTION_NOT_FOUND,
            api.NVML_ERROR_INVALID_ARGUMENT,
            api.NVML_ERROR_NO_PERMISSION,
            api.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            api.NVML_ERROR_DEPRECATED,
        }
        self._not_now = {api.NVML_ERROR_NOT_FOUND, api.NVML_ERROR_NO_DATA, api.NVML_ERROR_NOT_READY}
        self._gone = {api.NVML_ERROR_GPU_IS_LOST, api.NVML_ERROR_RESET_REQUIRED, api.NVML_ERROR_GPU_NOT_FOUND}
        self._refused: set[tuple[object, ...]] = set()
        self._devices: dict[int, list[Device]] = {}
        self.lost: set[str] = set()
        """UUIDs of GPUs that no longer answer."""
        self.failed: Counter[str] = Counter()
        """Calls that failed for other reasons than that the GPU does not support them, by name."""
        self.answers: Counter[str] = Counter()
        """How many calls were answered, by UUID."""
        self._is_open = True

    @property
    def api(self) -> Any:
        """The pynvml module."""
        return self._api

    def close(self) -> None:
        """Shut the library down; idempotent."""
        if self._is_open:
            self._is_open = False
            try:
                self._api.nvmlShutdown()
            except self._api.NVMLError as e:
                self.failed[f"nvmlShutdown: {e}"] += 1

    def ask(self, device: Device, function: str, *arguments: object) -> Any:
        """Call `function` for a device; None where it does not answer."""
        return self._ask(device.handle, device.uuid, function, *arguments)

    def ask_first(self, device: Device, functions: tuple[str, ...], *arguments: object) -> Any:
        """Return what the first of these functions answers: newer names before those of older drivers."""
        for function in functions:
            if (answer := self.ask(device, function, *arguments)) is not None:
                return answer
        return None

    def _ask(self, handle: Any, uuid: str, function: str, *arguments: object) -> Any:
        key = (uuid, function, *arguments)
        if key in self._refused:
            return None
        if (call := getattr(self._api, function, None)) is None:
            # An older nvidia-ml-py than this function.
            self._refused.add(key)
            return None
        try:
            answer = call(handle, *arguments)
        except self._api.NVMLError as e:
            if e.value in self._never:
                self._refused.add(key)
            elif e.value in self._gone:
                self.lost.add(uuid)
            elif e.value not in self._not_now:
                self.failed[function] += 1
            return None
        self.lost.discard(uuid)
        self.answers[uuid] += 1
        return answer

    def refuses(self, device: Device, *call: object) -> bool:
        """Tell whether a call, or a field, is one that this device will never answer."""
        return (device.uuid, *call) in self._refused

    def refuse(self, device: Device, code: int, *call: object) -> None:
        """Remember a refusal that NVML says in an answer, if its code is a final one."""
        if code in self._never:
            self._refused.add((device.uuid, *call))

    def count(self) -> int:
        """Return how many GPUs there are; NvmlUnavailableError where NVML answers nothing, as while the driver is reloaded."""
        try:
            return int(self._api.nvmlDeviceGetCount())
        except self._api.NVMLError as e:
            self.failed["nvmlDeviceGetCount"] += 1
            raise NvmlUnavailableError(f"NVML answers no more ({e}): is the driver being reloaded or replaced?") from e

    def devices(self) -> list[Device]:
        """Return the GPUs and their MIG instances as they are now; a GPU that is lost stays as it was."""
        count = self.count()
        try:
            driver = str(self._api.nvmlSystemGetDriverVersion())
        except self._api.NVMLError:
            self.failed["nvmlSystemGetDriverVersion"] += 1
            driver = ""
        for index in range(min(count, _MAX_GPUS)):
            try:
                handle = self._api.nvmlDeviceGetHandleByIndex(index)
                self._devices[index] = self._describe(index, handle, driver)
            except self._api.NVMLError as e:
                self.failed["nvmlDeviceGetHandleByIndex"] += e.value not in self._gone
        return [device for index in sorted(self._devices) for device in self._devices[index]]

    def _describe(self, index: int, handle: Any, driver: str) -> list[Device]:
        api = self._api
        uuid, model = str(api.nvmlDeviceGetUUID(handle)), str(api.nvmlDeviceGetName(handle))
        minor = self._ask(handle, uuid, "nvmlDeviceGetMinorNumber")
        name = f"nvidia{index if minor is None else minor}"
        shared = {"hw.vendor": "NVIDIA", "hw.driver_version": driver}
        if serial := self._ask(handle, uuid, "nvmlDeviceGetSerial"):
            shared["hw.serial_number"] = str(serial)
        instances = []
        for place in range(min(self._ask(handle, uuid, "nvmlDeviceGetMaxMigDeviceCount") or 0, _MAX_INSTANCES)):
            # Not `_ask`: places come and go, and an empty one answers Not Found or Invalid Argument.
            try:
                part = api.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
                part_gpu = Gpu(index, str(api.nvmlDeviceGetUUID(part)), str(api.nvmlDeviceGetName(part)))
            except api.NVMLError:
                continue
            more = {"hw.id": part_gpu.uuid, "hw.model": part_gpu.model, "hw.name": f"{name}/{place}", "hw.parent": uuid}
            instances.append(Device(part, part_gpu, {**shared, **more}))
        pci = self._ask(handle, uuid, "nvmlDeviceGetPciInfo")
        gpu = Gpu(index, uuid, model, str(pci.busId) if pci else "", tuple(i.gpu for i in instances))
        whole = Device(handle, gpu, {**shared, "hw.id": uuid, "hw.model": model, "hw.name": name})
        return [whole, *instances]


def _loaded(library: str | None) -> ctypes.CDLL:
    """Load NVML as the linker finds it, or else from where drivers lie: a directory that came later is none to the linker."""
    try:
        return ctypes.CDLL(library or LIBRARY)
    except OSError:
        for directory in () if library else driver_directories():
            path = os.path.join(directory, LIBRARY)
            if os.path.exists(path):
                return ctypes.CDLL(path)
        raise
