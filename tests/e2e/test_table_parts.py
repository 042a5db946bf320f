"""Are stacks whole at once that go through a large file whose table is yet to be read?"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gpu.bpf.abi.stacks import Stop
from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import GPU_LAUNCHES, FrameKind, Stack, is_truncated
from otel_gpu.stacks.symbols.stacks import STOPS
from otel_gpu.stacks.unwind.file_tables import FileTable, FileTables
from otel_gpu.stacks.unwind.loader import UnwindLoader
from tests.e2e import ground
from tests.e2e.processes import DEADLINE_S, Program

_LINKS = 25
"""Functions of far_chain.c that stand on each stack, each in another part of the file."""
_NOT_YET_MAPPED, _NO_TABLE = (f"[truncated: {STOPS[stop]}]" for stop in (Stop.NO_MAPPING, Stop.NO_TABLE))


@pytest.fixture
def far_chain(tmp_path: Path) -> Path:
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    library = tmp_path / "far_chain.so"
    source = ground.PROGRAMS / "far_chain.c"
    subprocess.run([compiler, "-O1", "-g0", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.fixture
def whole_table_waits(monkeypatch: pytest.MonkeyPatch, far_chain: Path) -> Iterator[None]:
    """No whole table of the library is read before the test is over, as on a host that is too busy."""
    is_over = threading.Event()
    read = FileTables._read_files

    def late(tables: FileTables, files: list[FileTable]) -> None:
        if any(place.path == os.fsencode(far_chain) for file in files for place in file.places.values()):
            is_over.wait(DEADLINE_S)
        read(tables, files)

    monkeypatch.setattr(FileTables, "_read_files", late)
    yield
    is_over.set()


def _wait_for_parts(loader: UnwindLoader) -> None:
    """Wait until all parts that were asked for are in the kernel."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        with loader._lock:
            if not loader._grown and not loader.tables._parts.waiting():
                return
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _launch(program: Program, recorder: Recording) -> Stack:
    recorder.start()
    program.go()
    program.ready()
    (profile,) = recorder.finish()
    (sample,) = profile.samples
    return sample.stack


def test_all_parts_that_a_stack_goes_through_are_read_at_its_first_sight(
    far_chain: Path, whole_table_waits: None, tmp_path: Path
) -> None:
    command = ["python3", ground.PROGRAMS / "far_chain.py", far_chain]
    with Program(command, tmp_path) as program:
        program.ready()
        with Recording(program.pid, (GPU_LAUNCHES,)) as recorder:
            assert recorder.settle()
            program.go()
            program.ready()
            first = _launch(program, recorder)
            while first[-1].function == _NOT_YET_MAPPED:
                first = _launch(program, recorder)
            assert first[-1].function == _NO_TABLE
            _wait_for_parts(recorder._profile.loader)

            second = _launch(program, recorder)

    links = [frame.function for frame in second if frame.function.startswith("link_")]
    assert not is_truncated(second), second[-1].function
    assert links == [f"link_{n}" for n in range(_LINKS)][::-1]
    assert "step" in [frame.function for frame in second if frame.kind is FrameKind.CPYTHON]
