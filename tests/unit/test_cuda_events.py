"""What is a kernel called that nobody named?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gpu.bpf.abi.events import EVENT, ORIGIN, EventType
from otel_gpu.bpf.records import struct_of
from otel_gpu.discovery.processes import Process
from otel_gpu.receivers.cuda.events import CudaEvents
from otel_gpu.receivers.cuda.kernel_names.cache import SymbolCache
from otel_gpu.receivers.cuda.kernel_names.kernels import KernelTable
from otel_gpu.receivers.cuda.kernel_names.resolver import KernelNameResolver
from otel_gpu.sandbox.parsers import Parsers
from otel_gpu.signals.metrics import Resource, attributes

PID = 1 << 22
"""Of no process."""


@pytest.fixture
def events(parsers: Parsers, tmp_path: Path) -> Iterator[CudaEvents]:
    kernels = KernelTable()
    resolver = KernelNameResolver(kernels, parsers, SymbolCache(tmp_path))
    yield CudaEvents(kernels, resolver, None, lambda *_: None)  # type: ignore[arg-type]
    resolver.close()


def process(**attrs: str) -> Process:
    return Process(PID, Resource(attributes(attrs)), 0, exec_id=1)


def recorded(handle: int, text: bytes) -> bytes:
    return struct_of(EVENT).pack(EventType.RECORDED, PID, 1, PID, 0, handle, 0, 0, 0) + text + b"\0left over"


def first_launch(handle: int) -> bytes:
    return struct_of(EVENT).pack(EventType.FIRST_LAUNCH, PID, 1, PID, 0, handle, 0, 0, 0) + bytes(ORIGIN.itemsize)


def test_a_kernel_has_the_name_on_which_all_that_its_record_said_agrees(events: CudaEvents) -> None:
    texts = {
        1: [b"_Z4axpyPf"],
        2: [b"_Z4axpyPf", b"_Z4axpyPf", b"not a name", b"x"],
        3: [b"_Z4axpyPf", b"_Z4fillPf"],
        4: [b"\xff\x1b[0m"],
        5: [],
    }
    for handle, its in texts.items():
        for text in its:
            events.handle(recorded(handle, text))
        events.handle(first_launch(handle))

    shown = {handle: events.kernel_name(process(), handle) for handle in texts}

    assert shown == {1: "_Z4axpyPf", 2: "_Z4axpyPf", 3: "unknown+0x3", 4: "unknown+0x4", 5: "unknown+0x5"}


def test_what_a_program_asked_the_driver_stands_above_what_a_record_says(events: CudaEvents) -> None:
    events.handle(struct_of(EVENT).pack(EventType.NAMED, PID, 1, PID, 0, 7, 0, 0, 0) + b"asked\0")
    events.handle(recorded(7, b"recorded"))
    events.handle(first_launch(7))

    assert events.kernel_name(process(), 7) == "asked"


def test_a_kernel_of_a_process_that_has_ended_is_shown_by_its_program(events: CudaEvents) -> None:
    named = process(**{"process.executable.name": "trainer"})

    assert events.kernel_name(named, 0xBEEF) == "trainer+0xbeef"
    assert events.kernel_name(named, 0xBEEF | 7 << 64) == "trainer+0xbeef"
    assert events.kernel_name(process(), 0xBEEF) == "unknown+0xbeef"


def test_a_files_name_cannot_break_a_line(events: CudaEvents) -> None:
    named = process(**{"process.executable.name": "x\n" * 1000})

    shown = events.kernel_name(named, 0xBEEF)

    assert shown.startswith("x\\nx\\n")
    assert shown.endswith("…+0xbeef")
    assert len(shown) < 300
