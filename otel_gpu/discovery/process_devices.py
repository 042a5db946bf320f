"""Which GPUs are an observed process's devices? Told by its own questions to the driver, else by its environment and NVML.

A program that asks for its devices' UUIDs gets the truth, and we overhear it. Where it never asks, its variables and the
host's GPUs say it, if the order can be known and NVML does not find the program elsewhere; where NVML finds it on one GPU, and
it came before the probes or has used one device, it is that one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ..signals.metrics import Resource
from .gpus import Gpu, ProcessDevices, visible_devices
from .processes import Process, ProcessTable

Uuids = Callable[[Process], Mapping[int, str]]
"""What a process asked of the driver: UUIDs in hexadecimal digits, by ordinal."""


class DeviceTable:
    """The devices of the observed processes. Safe to use from several threads."""

    def __init__(self, processes: ProcessTable, uuids: Uuids = lambda _: {}) -> None:
        self._processes = processes
        self._uuids = uuids
        self._lock = threading.Lock()
        self._gpus: tuple[Gpu, ...] = ()
        self._in_use: dict[int, set[str]] | None = None
        """By pid; None while NVML has not said it."""

    def ask(self, uuids: Uuids) -> None:
        """Take who overhears what processes ask of the driver."""
        self._uuids = uuids

    def learn(self, gpus: Sequence[Gpu], in_use: Collection[tuple[str, int]]) -> None:
        """Take in the host's GPUs, and which process (UUID, pid) is on which."""
        by_pid: dict[int, set[str]] = {}
        for uuid, pid in in_use:
            by_pid.setdefault(pid, set()).add(uuid)
        with self._lock:
            self._gpus, self._in_use = tuple(gpus), by_pid

    def in_use(self) -> dict[int, set[str]] | None:
        """Return on which GPUs NVML finds processes, by pid; None while it has not been asked, or is not there."""
        with self._lock:
            return None if self._in_use is None else {pid: set(uuids) for pid, uuids in self._in_use.items()}

    def resource(self, pid: int) -> Resource | None:
        """Return who an observed process is that still runs, None for others."""
        process = self._processes.current(pid)
        return None if process is None else process.resource

    def devices(self, resource: Resource) -> ProcessDevices | None:
        """Return what is known of a process's devices."""
        process = self._processes.of_resource(resource)
        if process is None:
            return None
        environment = process.environment
        with self._lock:
            gpus, in_use = self._gpus, (self._in_use or {}).get(process.pid, set())
        in_container = any(name == "container.id" for name, _ in resource.attributes)
        visible = None
        if environment is not None and gpus:
            visible = visible_devices(gpus, environment, in_container=in_container)
        if visible is not None and not in_use <= {g.uuid for g in visible}:
            # It changed its variables after its start, which /proc does not show.
            visible = None
        by_ordinal = dict(enumerate(visible or ()))
        told = self._uuids(process)
        for ordinal, digits in told.items():
            by_ordinal[ordinal] = _gpu_of(digits, gpus, by_ordinal.get(ordinal))
        only = self._only(process, visible, gpus, in_use)
        used = tuple(gpu for gpu in _parts(gpus) if gpu.uuid in in_use)
        if not by_ordinal and only is None and not used:
            return None
        return ProcessDevices(by_ordinal, only, frozenset(told), used)

    def _only(
        self, process: Process, visible: tuple[Gpu, ...] | None, gpus: tuple[Gpu, ...], in_use: set[str]
    ) -> tuple[int | None, Gpu] | None:
        if visible is not None and len(visible) == 1:
            return 0, visible[0]
        # A process that we saw from its start has a device unknown only before it chose one.
        if not process.late or len(in_use) != 1:
            return None
        for gpu in _parts(gpus):
            if gpu.uuid in in_use:
                return (visible.index(gpu) if visible and gpu in visible else None), gpu
        return None


def _parts(gpus: Sequence[Gpu]) -> Iterator[Gpu]:
    """Yield GPUs and their instances."""
    return (part for whole in gpus for part in (whole, *whole.instances))


def _gpu_of(digits: str, gpus: Sequence[Gpu], guess: Gpu | None) -> Gpu:
    """Return the GPU of a UUID; one that NVML does not know has no model."""
    for gpu in gpus:
        if _digits(gpu.uuid) == digits:
            # Older programs are told the UUID of the whole GPU that their instance is part of.
            return guess if guess is not None and guess in gpu.instances else gpu
        for instance in gpu.instances:
            if _digits(instance.uuid) == digits:
                return instance
    text = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return Gpu(-1, f"GPU-{text}", "")


def _digits(uuid: str) -> str:
    return uuid.partition("-")[2].replace("-", "").lower()
