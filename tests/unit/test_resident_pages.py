"""A process's own memory is searched within bounds, and without changing it."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import struct
import subprocess
from collections.abc import Callable, Iterator

import pytest

from otel_gpu.errors import ProcessGoneError
from otel_gpu.receivers.cuda.kernel_names import resident_pages
from otel_gpu.receivers.cuda.kernel_names.resident_pages import AROUND, Places, allocated, find_places, variables
from otel_gpu.sandbox.memory import MemoryFault, MemoryFiles
from otel_gpu.sandbox.work import OpenFile
from tests.process_memory import memory_files
from tests.stopwatch import Stopwatch

PAGES = 64


@pytest.fixture
def memory() -> Iterator[mmap.mmap]:
    mapped = mmap.mmap(-1, PAGES * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    yield mapped
    mapped.close()


def address_of(mapped: mmap.mmap) -> int:
    view = ctypes.c_char.from_buffer(mapped)
    try:
        return ctypes.addressof(view)
    finally:
        del view


def put(mapped: mmap.mmap, at: int, value: int) -> None:
    words = [*range(1, AROUND + 1), value, *range(AROUND + 1, 2 * AROUND + 1)]
    struct.pack_into(f"<{len(words)}Q", mapped, at - 8 * AROUND, *words)


@pytest.fixture
def value() -> int:
    return random.getrandbits(62) | 1 << 62


@pytest.fixture(scope="module")
def files() -> Iterator[MemoryFiles]:
    with memory_files(os.getpid()) as opened:
        yield opened


@pytest.fixture
def search(files: MemoryFiles) -> Callable[..., Places]:
    return lambda values, *avoided: find_places(files, values, allocated(files.mappings(), avoided))


def own(places: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the places that the test made; the value may stand in the interpreter's own memory too."""
    return [p for p in places if p[:AROUND] == tuple(range(1, AROUND + 1))]


def test_a_value_is_found_with_what_stands_around_it(
    memory: mmap.mmap, value: int, search: Callable[..., Places]
) -> None:
    put(memory, 10_000, value)

    (place,) = own(search({value, value ^ 2})[value])

    assert place[AROUND] == value
    assert place[AROUND + 1 :] == tuple(range(AROUND + 1, 2 * AROUND + 1))


def test_pages_that_were_never_touched_stay_so(memory: mmap.mmap, value: int, search: Callable[..., Places]) -> None:
    put(memory, 40 * mmap.PAGESIZE + 800, value)
    touched = list(_touched(memory))

    assert own(search({value})[value])

    assert list(_touched(memory)) == touched == [40]


def _touched(memory: mmap.mmap) -> Iterator[int]:
    with open("/proc/self/pagemap", "rb") as pagemap:
        pagemap.seek(address_of(memory) // mmap.PAGESIZE * 8)
        for page, (entry,) in enumerate(struct.iter_unpack("<Q", pagemap.read(8 * PAGES))):
            if entry >> 63:
                yield page


def test_a_mapping_with_an_avoided_address_is_left_out(
    memory: mmap.mmap, value: int, search: Callable[..., Places]
) -> None:
    put(memory, 10_000, value)

    assert not own(search({value}, address_of(memory) + 5).get(value, []))


def test_a_common_number_has_a_bounded_number_of_places(
    memory: mmap.mmap, value: int, search: Callable[..., Places]
) -> None:
    for at in range(2_000, 2_000 + 200 * 8 * (2 * AROUND + 1), 8 * (2 * AROUND + 1)):
        put(memory, at, value)

    assert len(search({value})[value]) == 64


def test_the_search_ends_where_its_bounds_are(
    memory: mmap.mmap, value: int, monkeypatch: pytest.MonkeyPatch, search: Callable[..., Places]
) -> None:
    put(memory, 10_000, value)

    monkeypatch.setattr(resident_pages, "_MAX_BYTES", 0)
    assert search({value}) == {}
    monkeypatch.undo()
    monkeypatch.setattr(resident_pages, "_MAX_SECONDS", 0.0)
    assert search({value}) == {}


def test_a_process_that_is_gone_is_said_to_be() -> None:
    with memory_files(1 << 22) as files, pytest.raises(ProcessGoneError):
        list(files.mappings())
    with subprocess.Popen(["sleep", "60"]) as child, memory_files(child.pid) as files:
        assert list(files.mappings())
        child.kill()
        child.wait()
        with pytest.raises(ProcessGoneError):
            list(files.mappings())
        with pytest.raises(ProcessGoneError):
            files.memory.read(4096, 1)


def test_a_process_that_may_not_be_looked_at_is_not_said_to_be_gone() -> None:
    files = [OpenFile(-1, None, 0, "mem", "Permission denied", "PermissionError")] * 3
    with pytest.raises(MemoryFault, match="Permission denied"):
        MemoryFiles.opened(files).read_maps()
    with pytest.raises(MemoryFault):
        MemoryFiles.opened(files).memory.read(4096, 1)


def test_nothing_is_read_for_no_values(files: MemoryFiles) -> None:
    assert find_places(files, set(), []) == {}


def test_a_mapping_of_which_nearly_nothing_is_in_memory_takes_no_longer_than_a_search_may(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident_pages, "_MAX_SECONDS", 0.05)
    watch = Stopwatch()

    assert find_places(files, {1 << 62}, [(1 << 40, 1 << 46)]) == {}
    assert watch.seconds() < 5


def test_variables_are_the_writable_parts_of_an_extent(memory: mmap.mmap, value: int, files: MemoryFiles) -> None:
    start = address_of(memory)
    put(memory, 10_000, value)

    assert variables(files.mappings(), (start + 100, start + 2 * mmap.PAGESIZE + 1)) == [
        (start, start + 3 * mmap.PAGESIZE)
    ]
    assert variables(files.mappings(), (0, 4096)) == []
    assert own(find_places(files, {value}, variables(files.mappings(), (start, start + 100_000)))[value])
