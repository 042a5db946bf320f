"""Which memory was released without being freed? What ended with its context, its device's reset or its process."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from ...bpf.abi.memory import LIVE, LIVE_KEY
from ...bpf.abi.programs import Table
from ...bpf.abi.rows import KIND_HIP, MemoryType
from ...bpf.maps import BpfMap
from ...discovery.program_id import ProgramId
from ...signals.structs import Frozen
from .ranges import Ranges

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


class ReleasedMemory(Frozen):
    """Memory of one type and device that was released with the context that it belonged to."""

    program: ProgramId
    device: int
    type: MemoryType
    size: int
    is_hip: bool = False


class _Ends:
    """What of one program ended, each with when it last did: of the same handle, whatever is older has ended."""

    def __init__(self) -> None:
        self.contexts: dict[int, int] = {}
        self.devices: dict[int, int] = {}


class _Older:
    """Tells which allocations are older than the end of what they were made in; made once for many of them."""

    def __init__(self, ends: Mapping[int, int]) -> None:
        """`ends` says of a handle or an ordinal when it ended."""
        self._numbers = np.array(sorted(ends), np.uint64)
        self._when_ns = np.array([ends[number] for number in self._numbers.tolist()], np.uint64)

    def __call__(
        self, numbers: npt.NDArray[np.unsignedinteger], since_ns: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.bool_]:
        if not len(self._numbers):
            return np.zeros(len(numbers), bool)
        at = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        older: npt.NDArray[np.bool_] = (self._numbers[at] == numbers) & (since_ns < self._when_ns[at])
        return older


class LiveAllocations:
    """The kernel's table of live allocations, as far as the kernel cannot keep it itself."""

    def __init__(
        self,
        live: BpfMap,
        ranges: Ranges,
        release_entries: Callable[[Table, ProgramId, int], None],
        held: Callable[[ProgramId], int],
    ) -> None:
        """`release_entries` is told how many entries of a program were taken out of a table; of allocations there are `held`."""
        self._live = live
        self._ranges = ranges
        self._release_entries = release_entries
        self._held = held
        self._lock = threading.Lock()
        self._ends: defaultdict[tuple[ProgramId, bool], _Ends] = defaultdict(_Ends)
        self._released: list[ReleasedMemory] = []

    def context_ended(
        self, program: ProgramId, *, context: int | None, device: int | None, when_ns: int, is_hip: bool = False
    ) -> None:
        """Note that a context (or every context of a device) ended; `sweep` frees what it held."""
        with self._lock:
            ends = self._ends[program, is_hip]
            for of, number in ((ends.contexts, context), (ends.devices, device)):
                if number is not None:
                    of[number] = max(when_ns, of.get(number, 0))

    def sweep(self) -> None:
        """Free what ended since the last call: to read the table takes as long for one context as for all of them."""
        with self._lock:
            noted, self._ends = self._ends, defaultdict(_Ends)
        # Most contexts hold nothing when they end, of processes that live for moments above all.
        holding = {program for program in {program for program, _ in noted} if self._held(program)}
        ended: dict[int, list[tuple[ProgramId, bool, _Older, _Older]]] = defaultdict(list)
        for (program, is_hip), ends in noted.items():
            if program in holding:
                ended[_number(program)].append((program, is_hip, _Older(ends.contexts), _Older(ends.devices)))
        if not ended:
            return
        sizes: dict[tuple[ProgramId, bool, int, int], int] = defaultdict(int)
        removed: dict[tuple[Table, ProgramId], int] = defaultdict(int)
        for keys, values in self._live.read_parts(LIVE_KEY, LIVE):
            numbers = keys["tgid"].astype(np.uint64) << np.uint64(32) | keys["exec_id"]
            for number in set(numbers.tolist()) & ended.keys():
                for program, is_hip, in_contexts, on_devices in ended[number]:
                    mark = KIND_HIP if is_hip else 0
                    wanted = numbers == number
                    wanted &= np.isin(values["type"], [kind | mark for kind in _BOUND_TO_CONTEXT])
                    wanted &= in_contexts(values["context"], values["since_ns"]) | on_devices(
                        values["device"], values["since_ns"]
                    )
                    taken, deleted, of_ranges = self._take(keys[wanted], values[wanted])
                    removed[Table.LIVE, program] += deleted
                    for table, entries in of_ranges.items():
                        removed[table, program] += entries
                    for device, kind, size in taken[["device", "type", "size"]].tolist():
                        sizes[program, is_hip, device, kind & ~KIND_HIP] += size
        for (table, program), entries in removed.items():
            self._release_entries(table, program, entries)
        with self._lock:
            self._released += [
                ReleasedMemory(program, device, MemoryType(kind), size, is_hip)
                for (program, is_hip, device, kind), size in sizes.items()
            ]

    def _take(
        self, keys: npt.NDArray[np.void], values: npt.NDArray[np.void]
    ) -> tuple[npt.NDArray[np.void], int, dict[Table, int]]:
        """Remove allocations, and return those that were still there, how many were removed, and entries of their ranges."""
        if len(keys) > _ONE_BY_ONE:
            of_ranges = self._ranges.forget(keys, values)
            return values, self._live.delete_many(keys), of_ranges
        # The address may have been given out again since it was read.
        are_there = [self._live.get(key.tobytes()) == value.tobytes() for key, value in zip(keys, values, strict=True)]
        still = np.array(are_there, bool)
        keys, values = keys[still], values[still]
        of_ranges = self._ranges.forget(keys, values)
        taken = np.array([self._live.delete(key.tobytes()) for key in keys], bool)
        return values[taken], int(taken.sum()), of_ranges

    def take_released(self) -> list[ReleasedMemory]:
        """Return what was released since the last call."""
        with self._lock:
            taken, self._released = self._released, []
        return taken


def _number(program: ProgramId) -> int:
    return program.pid << 32 | program.exec_id
