"""What went with contexts that ended: each allocation once, and one look at the kernel's table for all of them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import numpy as np
import pytest

from otel_gpu.abi import KIND_HIP, LIVE, LIVE_KEY, MemoryType
from otel_gpu.bpf import libbpf
from otel_gpu.bpf.maps import BpfMap
from otel_gpu.program_id import ProgramId
from otel_gpu.receivers.cuda.live_allocations import LiveAllocations, ReleasedMemory

_CREATE, _HASH = 0, 1
_ROOM = 65536
ONE, OTHER = ProgramId(10, 1), ProgramId(11, 1)
MIB = 1 << 20


class _Made(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("kind", "key", "value", "entries"))


class Counted(BpfMap):
    """A map of the kernel's that says how often all of it was read."""

    passes: list[None]

    def read_parts(self, *layouts: object) -> Iterator[tuple[np.ndarray, np.ndarray]]:  # type: ignore[override]
        self.passes.append(None)
        yield from BpfMap.read_parts(self, *layouts)


class Table:
    """The table of live allocations, filled by a test."""

    def __init__(self, live: Counted) -> None:
        self.live = live
        self.held = {ONE: 0, OTHER: 0}
        self.allocations = LiveAllocations(live, self._release, lambda program: self.held[program])

    def _release(self, program: ProgramId, entries: int) -> None:
        self.held[program] -= entries

    def put(
        self, program: ProgramId, number: int, context: int, since_ns: int, *, device: int = 0, mark: int = 0
    ) -> None:
        key, value = np.zeros((), LIVE_KEY), np.zeros((), LIVE)
        key["tgid"], key["exec_id"], key["address"] = *program, MIB * (1 + number)
        value["size"], value["context"], value["since_ns"] = MIB, context, since_ns
        value["device"], value["type"], value["refs"] = device, MemoryType.DEVICE | mark, 1
        self.live.put(key.tobytes(), value.tobytes())
        self.held[program] += 1

    def swept(self) -> dict[tuple[ProgramId, int], int]:
        """Return the MiB that are released, by program and device."""
        self.allocations.sweep()
        released = self.allocations.take_released()
        assert released == [ReleasedMemory(r.program, r.device, MemoryType.DEVICE, r.size, r.is_hip) for r in released]
        return {(r.program, r.device): r.size // MIB for r in released}


@pytest.fixture
def table() -> Iterator[Table]:
    fd = libbpf.bpf(_CREATE, _Made(_HASH, LIVE_KEY.itemsize, LIVE.itemsize, _ROOM))
    try:
        yield Table(Counted("live", fd, _HASH, LIVE_KEY.itemsize, LIVE.itemsize, _ROOM, []))
    finally:
        os.close(fd)


def test_what_a_context_held_goes_with_it_and_nothing_else(table: Table) -> None:
    for number, (program, context, since_ns) in enumerate(
        [(ONE, 1, 10), (ONE, 1, 20), (ONE, 1, 30), (ONE, 2, 10), (OTHER, 1, 10)]
    ):
        table.put(program, number, context, since_ns)

    table.allocations.context_ended(ONE, context=1, device=None, when_ns=25)

    assert table.swept() == {(ONE, 0): 2}
    assert table.held == {ONE: 2, OTHER: 1}
    assert table.swept() == {}


@pytest.mark.parametrize("many", [10, 2000])
def test_an_allocation_is_released_once_however_many_ends_it_is_older_than(table: Table, many: int) -> None:
    for number in range(many):
        table.put(ONE, number, 1, 10)

    # A handle is given out again; and a reset of the device ends whatever is on it.
    for when_ns in (20, 30, 15):
        table.allocations.context_ended(ONE, context=1, device=None, when_ns=when_ns)
    table.allocations.context_ended(ONE, context=None, device=0, when_ns=40)

    assert table.swept() == {(ONE, 0): many}
    assert table.held[ONE] == 0


def test_runtimes_are_told_apart(table: Table) -> None:
    table.put(ONE, 0, 1, 10, device=3)
    table.put(ONE, 1, 1, 10, device=3, mark=KIND_HIP)

    table.allocations.context_ended(ONE, context=None, device=3, when_ns=20, is_hip=True)
    table.allocations.sweep()

    assert table.allocations.take_released() == [ReleasedMemory(ONE, 3, MemoryType.DEVICE, MIB, is_hip=True)]
    assert table.held[ONE] == 1


def test_the_table_is_read_once_for_all_that_ended(table: Table) -> None:
    contexts = 3000
    for context in range(1, contexts + 1):
        table.put(ONE, context, context, 10)
        table.allocations.context_ended(ONE, context=context, device=None, when_ns=20)

    assert table.swept() == {(ONE, 0): contexts}
    assert len(table.live.passes) == 1


def test_contexts_that_hold_nothing_cost_no_look_at_the_table(table: Table) -> None:
    table.put(OTHER, 0, 1, 10)
    for context in range(1, 100):
        table.allocations.context_ended(ONE, context=context, device=None, when_ns=20)

    assert table.swept() == {}
    assert table.live.passes == []
