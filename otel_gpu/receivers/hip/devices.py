"""Which AMD GPU is a HIP process's device N? Told by its environment and by the queues that it has, as amdkfd shows them.

The variables are those that the process began with; it may have set others itself, before it touched HIP. So a device gets
its UUID only where the process has queues on that GPU. Where it cannot be known there is none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...discovery import kfd
from ...discovery.kfd import AmdGpu
from ...discovery.process_info_work import are_there
from ...discovery.processes import Process, ProcessTable
from ...sandbox.files import RootedFile
from ...sandbox.parsers import Parsers, WorkError
from ...signals.metrics import Resource

_ROCR, _HIP, _CUDA, _OTHER = (
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)

_OF_THIS_HOST = -1


class HipDeviceTable:
    """The devices of the observed processes. Owned by one thread, but for `observe`."""

    def __init__(self, processes: ProcessTable, parsers: Parsers, sysfs: Path = kfd.SYSFS) -> None:
        self._processes = processes
        self._parsers = parsers
        self._sysfs = sysfs
        self._gpus = kfd.gpus(sysfs)
        self._lock = threading.Lock()
        self._in_containers: dict[Resource, tuple[AmdGpu, ...]] = {}
        """Those that a container has a device file of."""
        self._visible: dict[Resource, tuple[AmdGpu, ...]] = {}
        self._used: dict[Resource, frozenset[int]] = {}

    @property
    def is_empty(self) -> bool:
        """Say whether the host has no AMD GPU."""
        return not self._gpus

    def observe(self, process: Process) -> None:
        """Look which GPUs a process can reach, if it is in a container. Whatever that one has in `/dev` may not answer."""
        if self.is_empty or not _is_in_container(process):
            return
        with self._lock:
            if process.resource in self._in_containers:
                return
        gpus = self._reached(process.pid)
        with self._lock:
            self._in_containers[process.resource] = gpus

    def uuids(self, resource: Resource) -> Mapping[int, str]:
        """Return the UUIDs of a process's devices by ordinal, as far as they are known."""
        process = self._processes.of_resource(resource)
        if process is not None and not process.ended:
            gpus = self._gpus_of(process)
            if resource not in self._visible and gpus is not None:
                environment = process.environment
                self._visible[resource] = () if environment is None else visible_devices(gpus, environment)
            self._used[resource] = self._used.get(resource, frozenset()) | kfd.in_use(process.pid, self._sysfs)
        used = self._used.get(resource, frozenset())
        return {
            ordinal: gpu.uuid
            for ordinal, gpu in enumerate(self._visible.get(resource, ()))
            if gpu.uuid is not None and gpu.gpu_id in used
        }

    def forget(self, resource: Resource) -> None:
        """Drop a process that has ended."""
        with self._lock:
            self._in_containers.pop(resource, None)
        self._visible.pop(resource, None)
        self._used.pop(resource, None)

    def _gpus_of(self, process: Process) -> tuple[AmdGpu, ...] | None:
        """Return the GPUs that a process can reach; None where it is not known yet."""
        if not _is_in_container(process):
            return self._gpus
        with self._lock:
            return self._in_containers.get(process.resource)

    def _reached(self, pid: int) -> tuple[AmdGpu, ...]:
        dri = f"/proc/{pid}/root/dev/dri/renderD"
        files = [RootedFile(_OF_THIS_HOST, os.fsencode(f"{dri}{gpu.render_minor}")) for gpu in self._gpus]
        try:
            found = list(self._parsers.run(are_there, files, None))
        except WorkError:
            return ()
        return tuple(gpu for gpu, is_there in zip(self._gpus, found) if is_there)


def _is_in_container(process: Process) -> bool:
    return any(name == "container.id" for name, _ in process.resource.attributes)


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
