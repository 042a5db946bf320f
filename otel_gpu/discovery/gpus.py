"""Which GPU is a process's device N? Ordinals, `CUDA_VISIBLE_DEVICES` and UUIDs, as the driver reads them.

A program counts its devices from 0; what stands behind an ordinal depends on the variables of its environment and, in
a container, on which GPUs the runtime let in. Where the order cannot be known (mixed models sorted by speed, partitioned
GPUs without a choice) the answer is None: a wrong GPU is worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Gpu:
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
    if in_container:
        gpus = _let_in(gpus, environment.get("NVIDIA_VISIBLE_DEVICES"))
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    # The driver's own order is "fastest first", by a measure that it does not tell; equal models keep bus order.
    is_ordered = by_bus or len({g.model for g in gpus}) <= 1
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


def _let_in(gpus: Sequence[Gpu], choice: str | None) -> Sequence[Gpu]:
    """Return what the container runtime let in; anything but a list of GPUs is all of them."""
    if not choice or choice in ("all", "none", "void"):
        return gpus
    wanted = {entry.strip() for entry in choice.split(",")}
    inside: list[Gpu] = []
    for gpu in gpus:
        instances = tuple(i for i in gpu.instances if i.uuid in wanted)
        if str(gpu.index) in wanted or gpu.uuid in wanted:
            inside.append(gpu)
        elif instances:
            inside.append(replace(gpu, instances=instances))
    return inside or gpus


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


@dataclass(frozen=True, slots=True)
class ProcessDevices:
    """What is known of a process's devices."""

    by_ordinal: Mapping[int, Gpu]
    only: tuple[int | None, Gpu] | None = None
    """The one device that it can see or uses, with its ordinal where that is known."""
