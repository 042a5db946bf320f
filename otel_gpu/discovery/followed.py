"""Which processes have come of those that are observed? The kernel adds each child as it is made, before it does anything."""

from __future__ import annotations

from collections.abc import Iterator

from ..bpf.maps import BpfMap


class FollowedProcesses:
    """The processes that were named, and all that come of them. Safe to use from several threads."""

    def __init__(self, targets: BpfMap) -> None:
        self._targets = targets

    def __contains__(self, pid: int) -> bool:
        return self._targets.get(pid.to_bytes(4, "little")) is not None

    def __iter__(self) -> Iterator[int]:
        keys, _ = self._targets.read("<u4", "u1")
        return iter(sorted(keys.tolist()))

    def add(self, pid: int) -> None:
        """Follow a process that was made before the kernel followed its parent."""
        self._targets.put(pid.to_bytes(4, "little"), b"\1")

    def discard(self, pid: int) -> None:
        """Follow a process no more, since it has ended: another one may get its number."""
        self._targets.delete(pid.to_bytes(4, "little"))
