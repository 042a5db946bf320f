"""What programs show of a driver is kept by its content, and given up when another program shows otherwise."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from otel_gpu.receivers.cuda.kernel_names.cache import SymbolCache
from otel_gpu.receivers.cuda.kernel_names.driver_names import DriverNames
from otel_gpu.receivers.cuda.kernel_names.driver_paths import DriverPaths
from otel_gpu.receivers.cuda.kernel_names.driver_records import judged
from otel_gpu.receivers.cuda.kernel_names.kernels import KernelTable
from otel_gpu.receivers.cuda.kernel_names.launches import Module
from otel_gpu.receivers.cuda.kernel_names.memory_work import DriverNamesAnswer
from otel_gpu.receivers.cuda.kernel_names.private_pages import PrivatePages
from otel_gpu.receivers.cuda.kernel_names.program_memory import ProgramMemory
from otel_gpu.receivers.cuda.kernel_names.stub_map import StubMap
from otel_gpu.sandbox.files import FileId, MappedFile
from otel_gpu.sandbox.memory import MemoryFault, MemoryFiles
from otel_gpu.sandbox.parsers import Parsers
from tests.process_memory import memory_files

PROGRAM = (os.getpid(), 1)
NAMES = [f"own_kernel_{i}" for i in range(5)]


class Record(ctypes.Structure):
    _fields_ = (("first", ctypes.c_uint64), ("name", ctypes.c_char_p), ("rest", ctypes.c_uint64 * 62))


def records(names: list[str]) -> dict[int, tuple[str, Record]]:
    made = [(name, Record(7, name.encode())) for name in names]
    return {ctypes.addressof(record): (name, record) for name, record in made}


def named(kept: dict[int, tuple[str, Record]]) -> dict[int, str]:
    return {handle: name for handle, (name, _) in kept.items()}


@pytest.fixture
def own() -> Iterator[PrivatePages]:
    """Read this process."""
    with memory_files(os.getpid()) as files:
        yield LatePages(files)


class LatePages:
    """What stands in this process now, whatever is made between two questions."""

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files

    def read(self, address: int, size: int) -> bytes:
        return PrivatePages(self._files).read(address, size)


@pytest.fixture
def memory(parsers: Parsers) -> Iterator[ProgramMemory]:
    """Have a child read this process."""
    found = ProgramMemory(parsers, os.getpid())
    yield found
    found.close()


@pytest.fixture
def driver() -> Module:
    """Stands in for a driver: this interpreter's own file."""
    status = os.stat(sys.executable)
    device = os.major(status.st_dev), os.minor(status.st_dev)
    path = os.fsencode(os.path.realpath(sys.executable))
    file = MappedFile(os.getpid(), 0, 4096, 0, device, status.st_ino, path)
    return Module(0, 4096, 0, "driver", StubMap(), (0, 4096), file, FileId.of(status))


def test_what_one_program_showed_is_known_in_the_next_run(
    driver: Module, parsers: Parsers, own: PrivatePages, tmp_path: Path
) -> None:
    kept = records(NAMES)
    driver_paths = DriverPaths(parsers, SymbolCache(tmp_path))
    driver_paths.put(driver, judged(own, driver_paths.paths(driver), named(kept)))

    again = DriverPaths(parsers, SymbolCache(tmp_path)).paths(driver)
    assert (8, 0) in again
    assert again == driver_paths.paths(driver)


def test_what_was_shown_is_reported_of_a_file_that_is_not_read_again(
    driver: Module, parsers: Parsers, own: PrivatePages, tmp_path: Path
) -> None:
    assert driver.id is not None
    reported: dict[FileId, frozenset[tuple[int, ...]]] = {}
    first = DriverPaths(parsers, SymbolCache(tmp_path), reported.__setitem__)
    assert first.report(driver.id)  # of no driver is anything known
    assert reported == {}
    kept = records(NAMES)
    first.put(driver, judged(own, frozenset(), named(kept)))
    shown = first.paths(driver)
    assert (8, 0) in shown
    assert reported == {driver.id: shown}

    reported.clear()
    again = DriverPaths(parsers, SymbolCache(tmp_path), reported.__setitem__)
    assert again.report(driver.id)
    assert reported == {driver.id: shown}
    # Another file is read first; and what a file was is found out anew before anything is believed of others like it.
    other = replace(driver.id, changed_ns=1)
    assert not again.report(other)
    assert driver.file is not None
    again.read(other, driver.file)
    assert reported == {driver.id: shown, other: shown}
    again.put(driver, frozenset())
    assert reported == {driver.id: frozenset(), other: frozenset()}


def test_a_program_that_shows_otherwise_ends_belief(
    driver: Module, parsers: Parsers, own: PrivatePages, tmp_path: Path
) -> None:
    kept = records(NAMES)
    driver_paths = DriverPaths(parsers, SymbolCache(tmp_path))
    driver_paths.put(driver, judged(own, frozenset(), named(kept)))
    assert driver_paths.paths(driver)
    lies = dict.fromkeys(named(kept), "something_else")
    driver_paths.put(driver, judged(own, driver_paths.paths(driver), lies))
    assert driver_paths.paths(driver) == frozenset()
    assert DriverPaths(parsers, SymbolCache(tmp_path)).paths(driver) == frozenset()


def test_nothing_is_believed_of_a_driver_that_cannot_be_read(driver: Module, parsers: Parsers, tmp_path: Path) -> None:
    driver_paths = DriverPaths(parsers, SymbolCache(tmp_path))

    driver_paths.put(replace(driver, id=None), {(8, 0)})

    assert driver_paths.paths(replace(driver, id=None)) == frozenset()
    assert driver_paths.paths(driver) == frozenset()


def test_records_without_device_code_or_known_names_are_not_believed(memory: ProgramMemory) -> None:
    kept = records([f"{name}_nowhere" for name in NAMES])

    said = memory.driver(list(kept), {}, frozenset())
    assert said.needs_files
    said = memory.driver(list(kept), {}, frozenset(), in_files=frozenset({"another"}))
    assert said == DriverNamesAnswer(frozenset())
    said = memory.driver(list(kept), {}, frozenset(), in_files=frozenset(named(kept).values()))
    assert said.names == named(kept)


def test_late_handles_are_named_by_what_known_ones_showed(
    driver: Module, parsers: Parsers, memory: ProgramMemory, tmp_path: Path
) -> None:
    table = KernelTable()
    names = DriverNames(table, parsers, SymbolCache(tmp_path))
    known, late = records(NAMES), records(["late_kernel"])
    for handle, name in named(known).items():
        table.learn(PROGRAM, handle, name)
        names.launched_known(PROGRAM, handle)
    (handle,) = late

    assert names.name(PROGRAM, driver, memory, {handle: 1.0}) == {handle}
    assert table.name(PROGRAM, handle) == "late_kernel"
    assert table.said(PROGRAM, [handle]) == {}


def test_a_program_shows_its_driver_though_it_ends_while_that_is_read(
    driver: Module, parsers: Parsers, tmp_path: Path
) -> None:
    table = KernelTable()
    names = DriverNames(table, parsers, SymbolCache(tmp_path))
    for handle, name in named(kept := records(NAMES)).items():
        table.learn(PROGRAM, handle, name)
        names.launched_known(PROGRAM, handle)
    if not (twin := os.fork()):
        signal.pause()
        os._exit(0)
    memory = ProgramMemory(parsers, twin)

    def driver_once_it_has_ended() -> Module:
        os.kill(twin, signal.SIGKILL)
        os.waitpid(twin, 0)
        return driver

    names.judge(PROGRAM, driver_once_it_has_ended, memory)
    memory.close()

    assert kept
    assert (8, 0) in DriverPaths(parsers, SymbolCache(tmp_path)).paths(driver)


def test_what_may_have_been_unloaded_is_not_named(
    driver: Module, parsers: Parsers, memory: ProgramMemory, tmp_path: Path
) -> None:
    table = KernelTable()
    names = DriverNames(table, parsers, SymbolCache(tmp_path))
    known, late = records(NAMES), records(["late_kernel"])
    for handle, name in named(known).items():
        table.learn(PROGRAM, handle, name)
        names.launched_known(PROGRAM, handle)
    (handle,) = late
    names.doubt(PROGRAM)

    assert names.name(PROGRAM, driver, memory, {handle: 1.0}) == set()
    assert table.name(PROGRAM, handle) is None


def test_unloaded_kernels_are_no_evidence() -> None:
    table = KernelTable()
    table.learn(PROGRAM, 1, "one", module=9)
    table.learn(PROGRAM, 2, "two")
    table.learn(PROGRAM, 3, "three", derived=True)
    table.alias(PROGRAM, 4, 3)

    assert table.said(PROGRAM, [1, 2, 3, 4]) == {1: "one", 2: "two"}
    assert table.unload(PROGRAM, 9)
    assert not table.unload(PROGRAM, 10)
    assert table.said(PROGRAM, [1, 2]) == {2: "two"}
    table.unload_all(PROGRAM)
    assert table.said(PROGRAM, [2]) == {}
    assert table.name(PROGRAM, 2) == "two"


def test_only_private_memory_is_read() -> None:
    record = Record(5, b"x")
    with memory_files(os.getpid()) as files:
        pages = PrivatePages(files)
        with pytest.raises(MemoryFault):
            pages.read(0, 8)
        assert pages.read(ctypes.addressof(record), 1) == b"\5"
