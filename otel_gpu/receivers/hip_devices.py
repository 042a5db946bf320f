"""Which AMD GPU is a HIP process's device N? Told by its environment and by the queues that it has, as amdkfd shows them.

The variables are those that the process began with; it may have set others itself, before it touched HIP. So a device gets
its UUID only where the process has queues on that GPU. Where it cannot be known there is none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..discovery import kfd, procfs
from ..discovery.kfd import AmdGpu
from ..discovery.processes import Process, ProcessTable
from ..errors import ProcessGoneError
from ..model import Resource

_ROCR, _HIP, _CUDA, _OTHER = (
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)
_VARIABLES = frozenset({_ROCR, _HIP, _CUDA, _OTHER})


class HipDeviceBook:
    """The devices of the observed processes. Owned by one thread."""

    def __init__(self, processes: ProcessTable, sysfs: Path = kfd.SYSFS) -> None:
        self._processes = processes
        self._sysfs = sysfs
        self._gpus = kfd.gpus(sysfs)
        self._visible: dict[Resource, tuple[AmdGpu, ...]] = {}
        self._used: dict[Resource, frozenset[int]] = {}

    @property
    def is_empty(self) -> bool:
        """Say whether the host has no AMD GPU."""
        return not self._gpus

    def uuids(self, resource: Resource) -> Mapping[int, str]:
        """Return the UUIDs of a process's devices by ordinal, as far as they are known."""
        process = next((p for p in self._processes if p.resource == resource), None)
        if process is not None and not process.ended:
            if resource not in self._visible:
                self._visible[resource] = self._read(process)
            self._used[resource] = self._used.get(resource, frozenset()) | kfd.in_use(process.pid, self._sysfs)
        used = self._used.get(resource, frozenset())
        return {
            ordinal: gpu.uuid
            for ordinal, gpu in enumerate(self._visible.get(resource, ()))
            if gpu.uuid is not None and gpu.gpu_id in used
        }

    def forget(self, resource: Resource) -> None:
        """Drop a process that has ended."""
        self._visible.pop(resource, None)
        self._used.pop(resource, None)

    def _read(self, process: Process) -> tuple[AmdGpu, ...]:
        try:
            environment = procfs.environment(process.pid, _VARIABLES)
        except (ProcessGoneError, PermissionError):
            return ()
        gpus = self._gpus
        if any(name == "container.id" for name, _ in process.resource.attributes):
            dri = f"/proc/{process.pid}/root/dev/dri/renderD"
            gpus = tuple(gpu for gpu in gpus if os.path.exists(f"{dri}{gpu.render_minor}"))
        return visible_devices(gpus, environment)


def visible_devices(gpus: Sequence[AmdGpu], environment: Mapping[str, str]) -> tuple[AmdGpu, ...]:
    """Return a process's devices by ordinal; none where their order cannot be known."""
    if environment.get(_OTHER):
        return ()
    by_runtime = _chosen(gpus, environment.get(_ROCR))
    return _chosen(by_runtime, environment.get(_HIP) or environment.get(_CUDA))


def _chosen(gpus: Sequence[AmdGpu], choice: str | None) -> tuple[AmdGpu, ...]:
    if not choice:
        return tuple(gpus)
    found: list[AmdGpu] = []
    for entry in map(str.strip, choice.split(",")):
        gpu = _named(gpus, entry)
        if gpu is None:
            break  # as the runtime does: what follows is not looked at
        if gpu in found:
            return ()
        found.append(gpu)
    return tuple(found)


def _named(gpus: Sequence[AmdGpu], entry: str) -> AmdGpu | None:
    if entry.isascii() and entry.isdigit() and len(entry) < 9:
        return gpus[int(entry)] if int(entry) < len(gpus) else None
    named = [gpu for gpu in gpus if gpu.uuid is not None and f"gpu-{gpu.uuid}" == entry.lower()]
    return named[0] if len(named) == 1 else None
