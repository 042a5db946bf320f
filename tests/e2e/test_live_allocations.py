"""What went with contexts that ended: each allocation once, and one look at the kernel's table for all of them."""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from otel_gpu.bpf import libbpf
from otel_gpu.bpf.abi.memory import LIVE, LIVE_KEY, PINNED_KEY, RANGE_KEY
from otel_gpu.bpf.abi.programs import Table as Tables
from otel_gpu.bpf.abi.rows import KIND_HIP, MemoryType
from otel_gpu.bpf.maps import BpfMap
from otel_gpu.discovery.program_id import ProgramId
from otel_gpu.receivers.cuda.live_allocations import LiveAllocations, ReleasedMemory
from otel_gpu.receivers.cuda.ranges import Ranges, pinned_keys, range_keys

_CREATE, _HASH, _TRIE = 0, 1, 11
_NO_PREALLOC = 1
_ROOM = 65536
_PINNED, _RANGE = 1, 24
"""Bytes of what the tables of ranges say of each."""
ONE, OTHER = ProgramId(10, 1), ProgramId(11, 1)
MIB = 1 << 20


class _Made(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("kind", "key", "value", "entries", "flags"))


class Counted(BpfMap):
    """A map of the kernel's that says how often all of it was read."""

    passes: list[None]

    def read_parts(self, *layouts: object) -> Iterator[tuple[np.ndarray, np.ndarray]]:  # type: ignore[override]
        self.passes.append(None)
        yield from BpfMap.read_parts(self, *layouts)


class Table:
    """The table of live allocations, filled by a test."""

    def __init__(self, live: Counted, pinned: BpfMap, ranges: BpfMap) -> None:
        self.live = live
        self.of_ranges = {Tables.PINNED: pinned, Tables.RANGES: ranges}
        self.held = {(table, program): 0 for table in (Tables.LIVE, *self.of_ranges) for program in (ONE, OTHER)}
        self.allocations = LiveAllocations(
            live, Ranges(pinned, ranges), self._release, lambda program: self.held[Tables.LIVE, program]
        )

    def _release(self, table: Tables, program: ProgramId, entries: int) -> None:
        self.held[table, program] -= entries

    def put(
        self,
        program: ProgramId,
        number: int,
        context: int,
        since_ns: int,
        *,
        device: int = 0,
        mark: int = 0,
        kind: MemoryType = MemoryType.DEVICE,
    ) -> None:
        key, value = np.zeros(1, LIVE_KEY), np.zeros(1, LIVE)
        key["tgid"], key["exec_id"], key["address"] = *program, MIB * (1 + number)
        value["size"], value["context"], value["since_ns"] = MIB, context, since_ns
        value["device"], value["type"], value["refs"] = device, kind | mark, 1
        self.live.put(key.tobytes(), value.tobytes())
        self.held[Tables.LIVE, program] += 1
        of, keys = (
            (Tables.PINNED, pinned_keys(key, value))
            if kind is MemoryType.HOST
            else (Tables.RANGES, range_keys(key, value))
        )
        for entry in keys:
            self.of_ranges[of].put(entry.tobytes(), bytes(self.of_ranges[of].value_size))
            self.held[of, program] += 1

    def assert_entries_are_counted(self) -> None:
        """The tables of ranges hold as much of each program as is counted."""
        for of, layout in ((Tables.PINNED, PINNED_KEY), (Tables.RANGES, RANGE_KEY)):
            keys = [np.frombuffer(key, layout)[0] for key in self.of_ranges[of].each_key()]
            for program in (ONE, OTHER):
                assert self.held[of, program] == sum(key["tgid"] == program.pid for key in keys)

    def swept(self) -> dict[tuple[ProgramId, int], int]:
        """Return the MiB that are released, by program and device."""
        self.allocations.sweep()
        released = self.allocations.take_released()
        found: Counter[tuple[ProgramId, int]] = Counter()
        for memory in released:
            found[memory.program, memory.device] += memory.size // MIB
        return dict(found)


@pytest.fixture
def table() -> Iterator[Table]:
    fd = libbpf.bpf(_CREATE, _Made(_HASH, LIVE_KEY.itemsize, LIVE.itemsize, _ROOM))
    trie = libbpf.bpf(_CREATE, _Made(_TRIE, PINNED_KEY.itemsize, _PINNED, _ROOM, _NO_PREALLOC))
    ranges = libbpf.bpf(_CREATE, _Made(_HASH, RANGE_KEY.itemsize, _RANGE, _ROOM))
    try:
        yield Table(
            Counted("live", fd, _HASH, LIVE_KEY.itemsize, LIVE.itemsize, _ROOM, []),
            BpfMap("pinned", trie, _TRIE, PINNED_KEY.itemsize, _PINNED, _ROOM),
            BpfMap("ranges", ranges, _HASH, RANGE_KEY.itemsize, _RANGE, _ROOM),
        )
    finally:
        for made in (fd, trie, ranges):
            os.close(made)


def test_what_a_context_held_goes_with_it_and_nothing_else(table: Table) -> None:
    for number, (program, context, since_ns) in enumerate(
        [(ONE, 1, 10), (ONE, 1, 20), (ONE, 1, 30), (ONE, 2, 10), (OTHER, 1, 10)]
    ):
        table.put(program, number, context, since_ns)

    table.allocations.context_ended(ONE, context=1, device=None, when_ns=25)

    assert table.swept() == {(ONE, 0): 2}
    assert (table.held[Tables.LIVE, ONE], table.held[Tables.LIVE, OTHER]) == (2, 1)
    table.assert_entries_are_counted()
    assert table.swept() == {}


@pytest.mark.parametrize("many", [10, 2000])
def test_an_allocation_is_released_once_however_many_ends_it_is_older_than(table: Table, many: int) -> None:
    for number in range(many):
        table.put(ONE, number, 1, 10, kind=MemoryType.HOST if number % 2 else MemoryType.DEVICE)

    # A handle is given out again; and a reset of the device ends whatever is on it.
    for when_ns in (20, 30, 15):
        table.allocations.context_ended(ONE, context=1, device=None, when_ns=when_ns)
    table.allocations.context_ended(ONE, context=None, device=0, when_ns=40)

    assert table.swept() == {(ONE, 0): many}
    assert {table.held[of, ONE] for of in (Tables.LIVE, Tables.PINNED, Tables.RANGES)} == {0}
    table.assert_entries_are_counted()


def test_runtimes_are_told_apart(table: Table) -> None:
    table.put(ONE, 0, 1, 10, device=3)
    table.put(ONE, 1, 1, 10, device=3, mark=KIND_HIP)

    table.allocations.context_ended(ONE, context=None, device=3, when_ns=20, is_hip=True)
    table.allocations.sweep()

    assert table.allocations.take_released() == [ReleasedMemory(ONE, 3, MemoryType.DEVICE, MIB, is_hip=True)]
    assert table.held[Tables.LIVE, ONE] == 1


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
