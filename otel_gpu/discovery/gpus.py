"""Which GPU is a process's device N? Ordinals, `CUDA_VISIBLE_DEVICES` and UUIDs, as the driver reads them.

A program counts its devices from 0; what stands behind an ordinal depends on the variables of its environment and, in
a container, on which GPUs the runtime let in. Where the order cannot be known (mixed models sorted by speed, partitioned
GPUs without a choice) the answer is None: a wrong GPU is worse than none.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..signals.structs import Frozen

_NODES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Of NVIDIA's driver, of AMD's, and of WSL's."""


class Gpu(Frozen):
    """A GPU of this host or an instance of one. `index` is NVML's, by PCI address."""

    index: int
    uuid: str
    """`GPU-…`, or `MIG-…` of an instance."""
    model: str
    pci_bus_id: str = ""
    instances: tuple[Gpu, ...] = ()
    """The MIG instances; a GPU that has any is no CUDA device itself."""


def visible_devices(
    gpus: Sequence[Gpu], environment: Mapping[str, str], *, in_container: bool = False
) -> tuple[Gpu, ...] | None:
    """Return a process's devices by ordinal, or None where the order cannot be known.

    `gpus` are all of the host's, by index; `environment` is the process's own.
    """
    is_known = True
    if in_container:
        let_in = _let_in(gpus, environment.get("NVIDIA_VISIBLE_DEVICES"))
        is_known = let_in is not None
        gpus = gpus if let_in is None else let_in
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    # The driver's own order is "fastest first", by a measure that it does not tell; equal models keep bus order.
    is_ordered = is_known and (by_bus or len({g.model for g in gpus}) <= 1)
    is_partitioned = any(g.instances for g in gpus)
    if chosen is None:
        return tuple(gpus) if is_ordered and not is_partitioned else None
    devices: list[Gpu] = []
    for entry in chosen.split(","):
        gpu: Gpu | None
        if (number := _number(entry)) is not None:
            if not is_ordered or is_partitioned:
                return None
            gpu = gpus[number] if number < len(gpus) else None
        else:
            gpu = _by_uuid(gpus, entry.strip())
        # The driver ignores whatever follows the first entry that names no device.
        if gpu is None:
            break
        if gpu in devices:
            # A device named twice leaves the program with none at all.
            return ()
        devices.append(gpu)
    # A process sees one MIG instance, the first.
    return tuple(devices[:1] if any(d.uuid.startswith("MIG-") for d in devices) else devices)


def _let_in(gpus: Sequence[Gpu], choice: str | None) -> Sequence[Gpu] | None:
    """Return what the container runtime let in; None where the variable does not say it.

    Images say `all` of themselves, and a device plugin or CDI that gives a container its GPUs says `void`, or nothing.
    """
    if len(gpus) == 1:
        return gpus
    if not choice or choice in ("all", "none", "void"):
        return None
    wanted = {entry.strip() for entry in choice.split(",")}
    inside: list[Gpu] = []
    for gpu in gpus:
        instances = tuple(i for i in gpu.instances if i.uuid in wanted)
        if str(gpu.index) in wanted or gpu.uuid in wanted:
            inside.append(gpu)
        elif instances:
            inside.append(replace(gpu, instances=instances))
    return inside or None


def _number(entry: str) -> int | None:
    entry = entry.strip()
    return int(entry) if entry.isascii() and entry.isdigit() and len(entry) < 9 else None


def _by_uuid(gpus: Sequence[Gpu], entry: str) -> Gpu | None:
    """Find a GPU by the start of its UUID, which must name just one, or an instance by either form of its name."""
    if entry.startswith("MIG-"):
        # Drivers before R470 wrote MIG-GPU-<uuid>/<gpu instance>/<compute instance>, which NVML no longer tells.
        found = [i for g in gpus for i in g.instances if i.uuid == entry]
    else:
        found = [g for g in gpus if entry.startswith("GPU-") and g.uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None


class ProcessDevices(Frozen):
    """What is known of a process's devices."""

    by_ordinal: Mapping[int, Gpu]
    only: tuple[int | None, Gpu] | None = None
    """The one device that it can see or uses, with its ordinal where that is known."""
    told: frozenset[int] = frozenset()
    """The ordinals of which the driver said it; of the others the process's variables did, as they were at its start."""
    in_use: tuple[Gpu, ...] = ()
    """On which NVML finds it; empty where it finds it on none, or is not there."""


class Ordinals:
    """Which GPUs one process's ordinals are, as they turn up. Owned by one thread."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._is_guess_wrong = False
        self._sole: dict[int, Gpu] = {}

    def take(self, devices: ProcessDevices, ordinals: Collection[int]) -> Mapping[int, Gpu]:
        """Return which GPUs the ordinals are that the process has used so far: the right ones or none.

        What its variables say does not hold where it has changed them itself, or where a container has other GPUs than they
        tell: then NVML finds it on a GPU that none of its ordinals would be, and not on one that an ordinal would be. Where it
        has used one ordinal and NVML finds it on one GPU, that is it.
        """
        self._seen.update(ordinals)
        told = {ordinal: devices.by_ordinal[ordinal] for ordinal in devices.told}
        guessed = {o: gpu for o, gpu in devices.by_ordinal.items() if o not in devices.told}
        if devices.in_use:
            expected = {devices.by_ordinal.get(ordinal) for ordinal in self._seen}
            found = set(devices.in_use)
            self._is_guess_wrong |= bool(guessed and self._seen) and not (expected <= found or found <= expected)
            if len(found) == 1 and len(self._seen) == 1 and not told and (self._is_guess_wrong or not guessed):
                self._sole = dict.fromkeys(self._seen, devices.in_use[0])
        return {**({} if self._is_guess_wrong else guessed), **self._sole, **told}


def has_gpu() -> bool:
    """Return whether this host shows a driver of GPUs."""
    return any(os.path.exists(device) for device in _NODES)
