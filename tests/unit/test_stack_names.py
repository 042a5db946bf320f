"""Do raw frames of the kernel become frames of a profile? Of this very process, whose truth is at hand."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gpu.bpf.abi.stacks import FrameKind as RawFrameKind
from otel_gpu.bpf.abi.stacks import Stop
from otel_gpu.sandbox.mappings import executable_mappings
from otel_gpu.sandbox.parsers import Parsers
from otel_gpu.signals.profiles import FileMapping, FrameKind, Stack, is_truncated
from otel_gpu.stacks.cpython.layout import code_checksum, layout_for
from otel_gpu.stacks.cpython.names import PythonNames
from otel_gpu.stacks.cpython.process import PythonProcess
from otel_gpu.stacks.symbols.file_names import FileNames
from otel_gpu.stacks.symbols.made_names import MadeNames
from otel_gpu.stacks.symbols.stacks import STOPS, StackNamer
from otel_gpu.stacks.unwind.address_space import load_bias, open_root, regions
from otel_gpu.stacks.unwind.loader import WalkedProcess
from otel_gpu.stacks.unwind.table_work import shapes

DEADLINE_S = 60.0


class Names:
    """Names the stacks of processes; `stack` waits until all names are there that there are."""

    def __init__(self) -> None:
        self.parsers = Parsers()
        self._looked_up = threading.Semaphore(0)
        self.files = FileNames(self.parsers, self._looked_up.release)
        self._python: list[PythonNames] = []
        self._made: list[MadeNames] = []

    def close(self) -> None:
        for python in self._python:
            python.close()
        for made in self._made:
            made.close()
        self.files.close()
        self.parsers.close()

    def walked(self, pid: int) -> WalkedProcess:
        process = WalkedProcess(pid, open_root(pid), regions(self.parsers, pid))
        for region in process.regions:
            if region.raw_path.startswith(b"/"):
                (shape,) = self.parsers.run(shapes, [region.mapped(pid)], None)
                bias = load_bias(shape, region)
                assert bias is not None
                process.biases[region] = bias
        return process

    def namer(self, process: WalkedProcess) -> StackNamer:
        self._python.append(PythonNames(self.parsers, process.pid))
        self._made.append(MadeNames(self.parsers, process.pid))
        return StackNamer(process, self.files, self._python[-1], self._made[-1])

    def stack(self, namer: StackNamer, raw: bytes, stop: int) -> Stack:
        (read,) = namer.read([(raw, stop)])
        while (named := namer.name(read)) is None:
            assert self._looked_up.acquire(timeout=DEADLINE_S)
        return named


@pytest.fixture(scope="module")
def names() -> Iterator[Names]:
    running = Names()
    yield running
    running.close()


@pytest.fixture(scope="module")
def own(names: Names) -> WalkedProcess:
    return names.walked(os.getpid())


@pytest.fixture
def namer(names: Names, own: WalkedProcess) -> StackNamer:
    return names.namer(own)


def _raw(*frames: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<QQ", address, kind << 56) for address, kind in frames)


def _address(name: str) -> int:
    return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0


def test_a_return_address_is_named_by_the_call_before_it(names: Names, namer: StackNamer) -> None:
    start = _address("qsort")

    exact, inside = names.stack(
        namer, _raw((start, RawFrameKind.EXACT), (start + 1, RawFrameKind.NATIVE)), Stop.OUTERMOST
    )

    assert exact.function == inside.function == "qsort"
    assert exact.address == inside.address
    # One that begins where a function does belongs to what lies before.
    assert names.stack(namer, _raw((start, RawFrameKind.NATIVE)), Stop.OUTERMOST)[0].function != "qsort"


@pytest.mark.parametrize("has_root", [True, False])
def test_the_files_of_a_process_that_has_ended_still_name_its_frames(
    names: Names, tmp_path: Path, *, has_root: bool
) -> None:
    program = tmp_path / "program"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as child:
        while not any(m.path == os.fsencode(program) for m in executable_mappings(names.parsers, child.pid)):
            time.sleep(0.001)
        process = names.walked(child.pid)
        child.kill()
    assert process.root is not None
    if not has_root:
        os.close(process.root)
        process.root = None
    region = next(r for r in process.biases if r.raw_path == os.fsencode(program))
    raw = _raw((region.start + 64, RawFrameKind.EXACT))
    (frame,) = names.stack(names.namer(process), raw, Stop.OUTERMOST)
    names.files.release(process.pid)
    program.unlink()
    (unknown,) = names.stack(names.namer(process), raw, Stop.OUTERMOST)
    names.files.release(process.pid)

    assert frame.mapping is not None
    assert frame.mapping.htlhash
    assert unknown.mapping == FileMapping(region.path)


def test_why_a_stack_ends_early_is_its_root(names: Names, namer: StackNamer) -> None:
    for stop, reason in STOPS.items():
        stack = names.stack(namer, _raw((_address("qsort"), RawFrameKind.EXACT)), stop)

        assert is_truncated(stack)
        assert stack[-1].function == f"[truncated: {reason}]"
    assert STOPS[Stop.NO_MAPPING] == "an address in no known mapping"


def test_code_made_at_run_time_has_one_name_wherever_it_is(names: Names, namer: StackNamer) -> None:
    first, second = names.stack(namer, _raw((0x1000, RawFrameKind.MADE), (0x2000, RawFrameKind.MADE)), Stop.OUTERMOST)

    assert first == second
    assert first.function == "[code made at run time]"


def test_code_that_its_runtime_tells_perf_of_has_its_name(names: Names, own: WalkedProcess) -> None:
    path = Path(f"/tmp/perf-{own.pid}.map")
    path.write_text("7000 10 JS:*made /a.js:1:1\n")
    try:
        # The first is called there; the second has just called the last thing that it calls.
        frames = (
            (0x7000, RawFrameKind.MADE << 56),
            (0x7010, RawFrameKind.MADE << 56 | 1),
            (0x7010, RawFrameKind.MADE << 56),
        )
        raw = b"".join(struct.pack("<QQ", *frame) for frame in frames)

        first, second, third = names.stack(names.namer(own), raw, Stop.OUTERMOST)
    finally:
        path.unlink()

    assert first.function == second.function == "JS:*made /a.js:1:1"
    assert third.function == "[code made at run time]"


def test_an_address_that_is_nowhere_keeps_its_number(names: Names, namer: StackNamer) -> None:
    (frame,) = names.stack(namer, _raw((0x1234, RawFrameKind.NATIVE)), Stop.OUTERMOST)

    assert (frame.function, frame.address, frame.kind) == ("", 0x1234, FrameKind.NATIVE)


def test_a_python_frame_of_a_process_whose_python_is_unknown_says_so(names: Names, namer: StackNamer) -> None:
    (frame,) = names.stack(namer, _raw((id(sys._getframe().f_code), RawFrameKind.PYTHON)), Stop.OUTERMOST)

    assert frame.kind is FrameKind.CPYTHON
    assert "unreadable" in frame.function
    assert namer.unresolved == {"gone": 1}


@pytest.mark.skipif(not (3, 11) <= sys.version_info < (3, 13), reason="later versions' layout needs their own memory")
def test_a_code_object_is_known_by_its_checksum(names: Names) -> None:
    layout = layout_for(sys.version_info[:2])
    python = PythonProcess(layout, (), 0, 0, 0, 0, id(types.CodeType))
    process = WalkedProcess(os.getpid(), python=python)
    namer = names.namer(process)
    frame = sys._getframe()
    code, lasti = frame.f_code, frame.f_lasti

    def raw(checksum: int) -> bytes:
        return struct.pack(
            "<QQ", id(code) | checksum >> 16 << 48, RawFrameKind.PYTHON << 56 | (checksum & 0xFFFF) << 32 | lasti
        )

    checksum = code_checksum(code.co_argcount, code.co_kwonlyargcount, code.co_flags, code.co_firstlineno)
    (named,) = names.stack(namer, raw(checksum), Stop.OUTERMOST)
    (other,) = names.stack(namer, raw(checksum ^ 1), Stop.OUTERMOST)

    assert (named.function, named.filename) == (code.co_qualname, code.co_filename)
    assert code.co_firstlineno < named.line <= frame.f_lineno
    # Another object's: the address has been given away since.
    assert other.function == "[unreadable Python frame: stale]"
    namer.forget_changing()
    assert names.stack(namer, raw(checksum), Stop.OUTERMOST) == (named,)
