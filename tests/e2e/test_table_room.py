"""Does the kernel hold the unwinding rows that are needed, when it cannot hold all of a process?"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_gpu.bpf.object import BpfObject
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.sandbox.parsers import Parsers
from otel_gpu.stacks.cpython.process import PythonProcess
from otel_gpu.stacks.eh_frame.tables import compile_table
from otel_gpu.stacks.unwind.address_space import Region, regions
from otel_gpu.stacks.unwind.cache import TableCache
from otel_gpu.stacks.unwind.file_tables import NO_ROOM, FileTable, FileTables
from otel_gpu.stacks.unwind.loader import UnwindLoader
from tests.e2e import ground
from tests.e2e.native_builds import Build
from tests.e2e.processes import Program

SETTLES_S = 120


def _loader(
    parsers: Parsers,
    rows: int,
    cache: TableCache,
    on_python: Callable[[int, PythonProcess], None] = lambda _pid, _python: None,
) -> tuple[BpfObject, UnwindLoader]:
    maps = BpfObject("profile")
    maps.configure_map("unwind_rows", max_entries=rows)
    maps.load(attach_type=lambda _: None, needed=())
    names = ("unwind_rows", "unwind_mappings", "unwind_processes")
    return maps, UnwindLoader(parsers, *map(maps.map, names), cache, on_python)


def _largest(parsers: Parsers, pid: int) -> tuple[Region, int]:
    """Return the region with the most rows, and how many these are."""
    found = []
    for region in regions(parsers, pid):
        if region.file is not None:
            with ElfFile(os.fsdecode(region.raw_path)) as elf:
                found.append((len(compile_table(elf).rows), region))
    rows, region = max(found, key=lambda f: f[0])
    return region, rows


def _wait_ready(loader: UnwindLoader, pid: int) -> None:
    deadline = time.monotonic() + SETTLES_S
    while not loader.is_ready(pid):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _holds(file: FileTable, address: int) -> bool:
    return any(part.begin <= address < part.end for part in file.parts.values())


def test_the_part_of_a_table_that_a_stack_needs_has_room_where_the_whole_has_not(tmp_path: Path) -> None:
    with Parsers() as parsers, Program(["python3", ground.PROGRAMS / "busy.py", "1"], tmp_path) as program:
        program.ready()
        largest, rows = _largest(parsers, program.pid)
        maps, loader = _loader(parsers, rows - 1, TableCache(tmp_path / "tables"))
        with maps:
            loader.watch(program.pid)
            assert loader.settle(SETTLES_S)
            process = loader.process(program.pid)
            assert process is not None
            assert largest.key is not None
            file = loader.tables.get(largest.key)
            assert file is not None
            assert loader.tables.lacks_room()
            assert file.why_not == NO_ROOM
            assert not file.parts

            address = (largest.start + largest.end) // 2
            loader.need(program.pid, [address])
            deadline = time.monotonic() + SETTLES_S
            while not _holds(file, address - process.biases[largest]):
                assert time.monotonic() < deadline
                time.sleep(0.01)

            assert 0 < file.rows < rows // 2
            loader.close()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_table_with_room_takes_the_place_of_its_parts(tmp_path: Path, *, is_first: bool) -> None:
    with Parsers() as parsers, Program(["python3", ground.PROGRAMS / "busy.py", "1"], tmp_path) as program:
        program.ready()
        largest, _ = _largest(parsers, program.pid)
        maps, loader = _loader(parsers, 1 << 20, TableCache(tmp_path / "tables"))
        with maps:
            for _ in range(1 if is_first else 2):
                loader.watch(program.pid)
                assert loader.settle(SETTLES_S)
            loader.need(program.pid, [(largest.start + largest.end) // 2])
            assert loader.settle(SETTLES_S)

            assert largest.key is not None
            file = loader.tables.get(largest.key)
            assert file is not None
            assert file.is_whole
            assert not file.parts
            assert not file.why_not
            loader.close()


_MAPS_LARGE_LIBRARIES = """
import ctypes, json, os, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path)
print(json.dumps({"event": "ready", "pid": os.getpid()}), flush=True)
sys.stdin.read()
"""


def test_what_all_stacks_need_is_read_before_large_libraries_that_were_mapped_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever can be overtaken by threads that read is.
    enqueue = FileTables._enqueue

    def slowly(*arguments: Any) -> None:
        enqueue(*arguments)
        time.sleep(0.1)

    monkeypatch.setattr(FileTables, "_enqueue", slowly)
    libraries = [tmp_path / f"late{n}.so" for n in range(4)]
    for library in libraries:
        shutil.copy(ground.part("cuda13") / "lib" / "libnvvm.so.4", library)
    command = ["python3", "-c", _MAPS_LARGE_LIBRARIES, *libraries]
    with Parsers() as parsers, Program(command, tmp_path) as program:
        program.ready()
        maps, loader = _loader(parsers, 1 << 22, TableCache(tmp_path / "tables"))
        with maps:
            loader.watch(program.pid)
            _wait_ready(loader, program.pid)
            large = [r.key for r in regions(parsers, program.pid) if r.path.startswith(str(tmp_path))]
            files = [loader.tables.get(key) for key in large if key is not None]
            whole = [file is not None and file.is_whole for file in files]
            assert loader.settle(SETTLES_S)
            loader.close()

    assert whole == [False] * len(libraries)
    assert all(file is not None and file.is_whole and file.rows for file in files)


_MAPS_WHEN_ASKED = """
import ctypes, json, os, sys
print(json.dumps({"event": "ready", "pid": os.getpid()}), flush=True)
sys.stdin.readline()
ctypes.CDLL(sys.argv[1])
print(json.dumps({"event": "ready", "pid": os.getpid()}), flush=True)
sys.stdin.read()
"""


def test_who_is_told_of_a_python_holds_up_no_look_at_its_process(tmp_path: Path) -> None:
    library = tmp_path / "late.so"
    shutil.copy(ground.part("mock") / "libcuda.so.1", library)
    is_told, is_over = threading.Event(), threading.Event()

    def tell(_pid: int, _python: PythonProcess) -> None:
        # As one does that asks a child of the program before, which has gone.
        is_told.set()
        is_over.wait(SETTLES_S)

    with Parsers() as parsers, Program(["python3", "-c", _MAPS_WHEN_ASKED, library], tmp_path) as program:
        program.ready()
        maps, loader = _loader(parsers, 1 << 20, TableCache(tmp_path / "tables"), tell)
        with maps:
            loader.watch(program.pid)
            assert is_told.wait(SETTLES_S)
            program.go()
            program.ready()
            loader.watch(program.pid)
            deadline = time.monotonic() + SETTLES_S / 4
            try:
                while not any(r.path == str(library) for r in loader.process(program.pid).regions):
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
            finally:
                is_over.set()
                loader.close()


def test_a_program_above_the_vdso_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where a program is linked to run anywhere and without a loader, the kernel's vDSO lies below it.
    program_file = Build("static-pie", ("-O2", "-fPIE"), ("-static-pie",), with_cxx=False).make(tmp_path)
    read = FileTables._read_files

    def slowly(tables: FileTables, files: list[FileTable]) -> None:
        time.sleep(0.3)
        read(tables, files)

    monkeypatch.setattr(FileTables, "_read_files", slowly)
    with Parsers() as parsers, Program([program_file, "spin", "60"], tmp_path) as program:
        program.event("spinning")
        maps, loader = _loader(parsers, 1 << 20, TableCache(tmp_path / "tables"))
        with maps:
            loader.watch(program.pid)
            _wait_ready(loader, program.pid)
            (own,) = (r.key for r in regions(parsers, program.pid) if r.file is not None)
            assert own is not None
            file = loader.tables.get(own)
            is_there = file is not None and file.is_whole and file.rows > 0
            loader.close()

    assert is_there
