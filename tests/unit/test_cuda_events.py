"""What is a kernel called that nobody named?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gpu.discovery.processes import Process
from otel_gpu.kernel_names.cache import SymbolCache
from otel_gpu.kernel_names.kernels import KernelTable
from otel_gpu.kernel_names.resolver import KernelNameResolver
from otel_gpu.process.parsers import Parsers
from otel_gpu.receivers.cuda.events import CudaEvents
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
