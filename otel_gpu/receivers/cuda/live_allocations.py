"""Which memory was released without being freed? What ended with its context, its device's reset or its process."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...abi import KIND_HIP, LIVE, LIVE_KEY, MemoryType
from ...bpf.maps import BpfMap
from ...program_id import ProgramId

_BOUND_TO_CONTEXT = (
    MemoryType.DEVICE,
    MemoryType.HOST,
    MemoryType.MANAGED,
    MemoryType.REGISTERED,
    MemoryType.ASYNC,
)
"""Virtual memory belongs to the device and outlives contexts."""

_ONE_BY_ONE = 256
"""Up to how many allocations, of a few thousand read at a time, are looked at again. One that is made where one of very
many was, in the millisecond before these are removed, is lost: looking at a million again would take 20 s."""


@dataclass(frozen=True, slots=True)
class ReleasedMemory:
    """Memory of one type and device that was released with the context that it belonged to."""

    program: ProgramId
    device: int
    type: MemoryType
    size: int
    is_hip: bool = False


class LiveAllocations:
    """The kernel's table of live allocations, as far as the kernel cannot keep it itself."""

    def __init__(self, live: BpfMap, release_entries: Callable[[ProgramId, int], None]) -> None:
        """`release_entries` is told how many allocations of a program were taken out of the table."""
        self._live = live
        self._release_entries = release_entries
        self._lock = threading.Lock()
        self._released: list[ReleasedMemory] = []

    def context_ended(
        self, program: ProgramId, *, context: int | None, device: int | None, when_ns: int, is_hip: bool = False
    ) -> None:
        """Free what a context held (or every context of a device) when it ended."""
        mark = KIND_HIP if is_hip else 0
        sizes: dict[tuple[int, int], int] = defaultdict(int)
        removed = 0
        for keys, values in self._live.read_parts(LIVE_KEY, LIVE):
            wanted = (
                (keys["tgid"] == program.pid) & (keys["exec_id"] == program.exec_id) & (values["since_ns"] < when_ns)
            )
            wanted &= np.isin(values["type"], [kind | mark for kind in _BOUND_TO_CONTEXT])
            if context is not None:
                wanted &= values["context"] == context
            if device is not None:
                wanted &= values["device"] == device
            taken, deleted = self._take(keys[wanted], values[wanted])
            removed += deleted
            for number, kind, size in taken[["device", "type", "size"]].tolist():
                sizes[number, kind & ~KIND_HIP] += size
        self._release_entries(program, removed)
        with self._lock:
            self._released += [
                ReleasedMemory(program, number, MemoryType(kind), size, is_hip)
                for (number, kind), size in sizes.items()
            ]

    def _take(self, keys: npt.NDArray[np.void], values: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.void], int]:
        """Remove allocations, and return those that were still there, and how many were removed."""
        if len(keys) > _ONE_BY_ONE:
            return values, self._live.delete_many(keys)
        # The address may have been given out again since it was read.
        taken = [
            self._live.get(key.tobytes()) == value.tobytes() and self._live.delete(key.tobytes())
            for key, value in zip(keys, values, strict=True)
        ]
        still: npt.NDArray[np.void] = values[np.array(taken, bool)]
        return still, len(still)

    def take_released(self) -> list[ReleasedMemory]:
        """Return what was released since the last call."""
        with self._lock:
            taken, self._released = self._released, []
        return taken
