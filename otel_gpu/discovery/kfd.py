"""Which AMD GPUs does this host have, and which of them does a process use? What the kernel's amdkfd driver shows in sysfs."""

from __future__ import annotations

import os
from pathlib import Path

from ..signals.structs import Frozen

SYSFS = Path("/sys/class/kfd/kfd")
_MAX_NODES = 1024
_MAX_FILE = 65_536


class AmdGpu(Frozen):
    """A GPU; they are enumerated in the order of their nodes."""

    gpu_id: int
    unique_id: int
    """What its UUID is made of; 0 where the hardware has none."""
    render_minor: int
    """Of /dev/dri/renderD…, without which a container does not see the GPU."""

    @property
    def uuid(self) -> str | None:
        """Return the UUID as rocminfo and hipDeviceGetUuid write it, without its prefix GPU-."""
        return f"{self.unique_id:016x}" if self.unique_id else None


def gpus(sysfs: Path = SYSFS) -> tuple[AmdGpu, ...]:
    """Return the host's GPUs in their order; none where there is no amdkfd."""
    try:
        nodes = sorted((n for n in os.listdir(sysfs / "topology/nodes") if n.isdecimal()), key=int)
    except OSError:
        return ()
    found = []
    for node in nodes[:_MAX_NODES]:
        gpu_id = _number(sysfs / "topology/nodes" / node / "gpu_id")
        properties = _properties(sysfs / "topology/nodes" / node / "properties")
        if gpu_id and properties.get("simd_count"):  # the others are CPUs
            found.append(AmdGpu(gpu_id, properties.get("unique_id", 0), properties.get("drm_render_minor", 0)))
    return tuple(found)


def in_use(pid: int, sysfs: Path = SYSFS) -> frozenset[int]:
    """Return the gpu_ids on which a process has queues now."""
    queues = sysfs / "proc" / str(pid) / "queues"
    try:
        names = os.listdir(queues)
    except OSError:
        return frozenset()
    ids = (_number(queues / name / "gpuid") for name in names)
    return frozenset(i for i in ids if i)


def _properties(path: Path) -> dict[str, int]:
    found = {}
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        if value.isdecimal():
            found[name] = int(value)
    return found


def _number(path: Path) -> int:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else 0


def _text(path: Path) -> str:
    try:
        with path.open() as file:
            return file.read(_MAX_FILE)
    except (OSError, UnicodeDecodeError):
        return ""
