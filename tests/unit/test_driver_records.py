"""A handle has the name that its record leads to only where that way is known to be right, however records look."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.receivers.cuda.kernel_names.driver_records import (
    confirmed,
    contradicts,
    follow,
    is_path,
    is_scarce,
    led_to,
    might_be_supported,
    supported,
    texts,
)
from otel_gpu.sandbox.memory import MemoryFault

NAMES = [f"_Z6kernel{i}Pf" for i in range(6)]
BASE = 0x7F00_0000_0000


class Heap:
    """Memory in which the test lays out what a driver might."""

    def __init__(self) -> None:
        self.data = bytearray()

    def put(self, *words: int | str, room: int = 0) -> int:
        address = BASE + len(self.data)
        for word in words:
            self.data += word.encode() + b"\0" if isinstance(word, str) else struct.pack("<Q", word)
        self.data += bytes(room + -len(self.data) % 64)
        return address

    def read(self, address: int, size: int) -> bytes:
        piece = bytes(self.data[address - BASE :][:size]) if address >= BASE else b""
        if len(piece) != size:
            raise MemoryFault("not there")
        return piece


def direct(heap: Heap, name: str) -> int:
    return heap.put(0, heap.put(name), 7, room=512)


def far(heap: Heap, name: str) -> int:
    return heap.put(1, heap.put(0, 0, heap.put(name), room=128), room=512)


def within(heap: Heap, name: str) -> int:
    return heap.put(1, 2, 3, name, room=512)


def among_decoys(heap: Heap, name: str) -> int:
    decoys = [heap.put(decoy) for decoy in (f"{name}_param_0", f".text.{name}", "sm_90", "tmpxft_0001")]
    return heap.put(*decoys[:2], heap.put(name), *decoys[2:], room=512)


LAYOUTS = [(direct, (8, 0)), (far, (8, 16, 0)), (within, (24,)), (among_decoys, (16, 0))]
each = pytest.mark.parametrize(("layout", "path"), LAYOUTS, ids=lambda p: getattr(p, "__name__", ""))
Layout = Callable[[Heap, str], int]


@each
def test_known_names_find_the_way(layout: Layout, path: tuple[int, ...]) -> None:
    heap = Heap()
    told = {layout(heap, name): name for name in NAMES[:4]}
    unknown = layout(heap, NAMES[5])

    believed = confirmed({handle: texts(heap, handle) for handle in told}, told)

    assert path in believed
    assert led_to(heap, unknown, believed) == NAMES[5]


@each
def test_device_code_finds_the_way_without_a_known_name(layout: Layout, path: tuple[int, ...]) -> None:
    heap = Heap()
    handles = {layout(heap, name): name for name in NAMES[:4]}
    found = {handle: texts(heap, handle) for handle in handles}

    assert might_be_supported(found)
    believed = supported(found, {*NAMES, "other"})
    assert path in believed
    assert {handle: led_to(heap, handle, believed) for handle in handles} == handles


@each
def test_few_known_names_prove_nothing(layout: Layout, path: tuple[int, ...]) -> None:
    heap = Heap()
    told = {layout(heap, name): name for name in NAMES[:2]}

    assert confirmed({handle: texts(heap, handle) for handle in told}, told) == frozenset()


@each
def test_two_handles_that_each_lead_to_one_kernel_are_named(layout: Layout, path: tuple[int, ...]) -> None:
    heap = Heap()
    found = {handle: texts(heap, handle) for handle in (layout(heap, name) for name in NAMES[:2])}

    assert is_scarce(found)
    assert path in supported(found, set(NAMES))
    assert supported(found, set(NAMES[:1])) == frozenset()
    assert supported(dict(list(found.items())[:1]), set(NAMES)) == frozenset()


def test_two_handles_of_which_one_leads_to_two_kernels_are_not_named() -> None:
    heap = Heap()
    first, second = heap.put(NAMES[0]), heap.put(NAMES[1])
    handles = [heap.put(0, first, room=512), heap.put(0, second, first, room=512)]

    assert supported({handle: texts(heap, handle) for handle in handles}, set(NAMES)) == frozenset()


def test_a_way_that_is_wrong_once_is_not_believed() -> None:
    heap = Heap()
    told = {direct(heap, name): name for name in NAMES}
    told[direct(heap, "something_else")] = "a_kernel"

    assert confirmed({handle: texts(heap, handle) for handle in told}, told) == frozenset()


def test_the_name_of_one_kernel_many_times_is_one_name() -> None:
    heap = Heap()
    told = {direct(heap, NAMES[0]): NAMES[0] for _ in range(5)}

    assert confirmed({handle: texts(heap, handle) for handle in told}, told) == frozenset()


def test_what_happens_to_lie_behind_some_records_is_not_believed() -> None:
    heap = Heap()
    told = {}
    for i, name in enumerate(NAMES):
        text = heap.put(name)
        told[heap.put(0, text, 7, text if i < 4 else 0, room=512)] = name

    believed = confirmed({handle: texts(heap, handle) for handle in told}, told)

    assert (8, 0) in believed
    assert (24, 0) not in believed


def test_parameters_and_sections_are_no_kernels() -> None:
    heap = Heap()
    handles = [heap.put(heap.put(f"{n}_param_0"), heap.put(f".nv.info.{n}"), heap.put("sm_90")) for n in NAMES]

    assert supported({handle: texts(heap, handle) for handle in handles}, set(NAMES)) == frozenset()


def test_a_name_in_no_device_code_is_believed_only_beside_many_that_are() -> None:
    heap = Heap()
    found = {handle: texts(heap, handle) for handle in (direct(heap, name) for name in NAMES[:4])}

    assert (8, 0) in supported(found, set(NAMES[:3]))
    assert supported(found, set(NAMES[:2])) == frozenset()


def test_two_ways_to_different_kernels_name_nothing() -> None:
    heap = Heap()
    addresses = [heap.put(name) for name in NAMES]
    handles = [heap.put(0, own, other, room=512) for own, other in itertools.pairwise(addresses)]

    assert supported({handle: texts(heap, handle) for handle in handles}, set(NAMES)) == frozenset()


def test_the_next_record_of_a_ring_does_not_stand_in_the_way() -> None:
    heap = Heap()
    handles = {direct(heap, name): name for name in NAMES}
    ring = list(handles)
    for handle, following in zip(ring, [*ring[1:], ring[0]], strict=True):
        struct.pack_into("<Q", heap.data, handle - BASE + 24, following)

    believed = supported({handle: texts(heap, handle) for handle in handles}, set(NAMES))

    assert {handle: led_to(heap, handle, believed) for handle in handles} == handles


def test_names_that_do_not_lead_from_all_handles_are_not_believed() -> None:
    heap = Heap()
    handles = [direct(heap, name) for name in NAMES[:5]] + [heap.put(1, 2, 3, room=512)]

    assert supported({handle: texts(heap, handle) for handle in handles}, set(NAMES)) == frozenset()


def test_believed_ways_that_do_not_agree_name_nothing() -> None:
    heap = Heap()
    handle = heap.put(heap.put("one_kernel"), heap.put("another_kernel"), room=512)

    assert led_to(heap, handle, [(0, 0)]) == "one_kernel"
    assert led_to(heap, handle, [(0, 0), (8, 0)]) is None
    assert led_to(heap, handle, []) is None


def test_numbers_that_look_like_text_are_no_names() -> None:
    heap = Heap()
    handle = heap.put(0x41, heap.put(0x4242), room=512)

    assert led_to(heap, handle, [(0,), (8, 0)]) is None
    assert not contradicts("A", "kernel")
    assert contradicts("Abc", "kernel")


@pytest.mark.parametrize("text", ["1name", "with space", "näme", "", "a" * 5000, "line\n"])
def test_what_is_no_identifier_is_no_name(text: str) -> None:
    heap = Heap()
    handle = heap.put(heap.put(text, room=64), room=512)

    assert follow(heap, handle, (0, 0)) is None


def test_a_long_name_across_many_reads_is_whole() -> None:
    heap = Heap()
    handle = heap.put(heap.put("k" * 4096), room=512)

    assert follow(heap, handle, (0, 0)) == "k" * 4096


def test_what_is_read_from_disk_is_checked() -> None:
    assert all(is_path(path) for _, path in LAYOUTS)
    assert not is_path(())
    assert not is_path((8, 8, 8, 0))
    assert not is_path((-8, 0))
    assert not is_path((1 << 40, 0))


@given(st.binary(max_size=4096), st.integers(0, 1 << 64), st.lists(st.integers(0, 600).map(lambda n: n * 8)))
def test_any_memory_is_read_within_bounds(data: bytes, handle: int, links: list[int]) -> None:
    heap = Heap()
    heap.data += data + bytes(-len(data) % 64)
    heap.put(*[BASE + link for link in links])

    for address in (handle, BASE, BASE + len(heap.data)):
        for path, text in texts(heap, address).items():
            assert is_path(path)
            assert follow(heap, address, path) == text
