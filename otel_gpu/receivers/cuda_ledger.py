"""Which memory went without being freed? What ended with its context, its device's reset or its process."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from ..abi import KIND_HIP, LIVE, LIVE_KEY, MemoryType
from ..bpf.maps import BpfMap

Program = tuple[int, int]
_PINNED_KEY = np.dtype([("bits", "<u4"), ("tgid", "<u4"), ("address", ">u8")])
_BOUND_TO_CONTEXT = (
    MemoryType.DEVICE,
    MemoryType.HOST,
    MemoryType.MANAGED,
    MemoryType.REGISTERED,
    MemoryType.ASYNC,
)
"""Virtual memory belongs to the device and outlives contexts."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Memory that went with what it belonged to."""

    program: Program
    device: int
    type: MemoryType
    size: int
    is_hip: bool = False


class Ledger:
    """The kernel's table of live allocations, as far as the kernel cannot keep it itself."""

    def __init__(self, live: BpfMap, mapped: BpfMap, pinned: BpfMap) -> None:
        self._live = live
        self._mapped = mapped
        self._pinned = pinned
        self._lock = threading.Lock()
        self._gone: list[Gone] = []

    def context_ended(
        self, program: Program, *, context: int | None, device: int | None, when_ns: int, is_hip: bool = False
    ) -> None:
        """Free what a context held (or every context of a device) when it ended."""
        mark = KIND_HIP if is_hip else 0
        keys, values = self._live.read(LIVE_KEY, LIVE)
        wanted = (keys["tgid"] == program[0]) & (keys["incarnation"] == program[1]) & (values["since_ns"] < when_ns)
        wanted &= np.isin(values["type"], [kind | mark for kind in _BOUND_TO_CONTEXT])
        if context is not None:
            wanted &= values["context"] == context
        if device is not None:
            wanted &= values["device"] == device
        for i in np.nonzero(wanted)[0].tolist():
            key = keys[i].tobytes()
            # The address may have been given out again since it was read.
            if self._live.get(key) != values[i].tobytes() or not self._live.delete(key):
                continue
            kind = MemoryType(int(values[i]["type"]) & ~KIND_HIP)
            with self._lock:
                self._gone.append(Gone(program, int(values[i]["device"]), kind, int(values[i]["size"]), is_hip))

    def take_gone(self) -> list[Gone]:
        """Return what went since the last call."""
        with self._lock:
            taken, self._gone = self._gone, []
        return taken

    def forget(self, programs: set[Program]) -> None:
        """Drop what programs that have ended still held."""
        if not programs:
            return
        for table in (self._live, self._mapped):
            keys, _ = table.read(LIVE_KEY, np.dtype((np.void, table.value_size)))
            owners = zip(keys["tgid"].tolist(), keys["incarnation"].tolist(), strict=True)
            for i, owner in enumerate(owners):
                if owner in programs:
                    table.delete(keys[i].tobytes())
        tgids = [tgid for tgid, _ in programs]
        for key in self._pinned.each_key():
            if int(np.frombuffer(key, _PINNED_KEY)[0]["tgid"]) in tgids:
                self._pinned.delete(key)
