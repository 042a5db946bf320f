"""Do raw frames of the kernel become frames of a profile? Of this very process, whose truth is at hand."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
import time
import types

import pytest

from otel_gpu.profiles import FileMapping, FrameKind, is_truncated
from otel_gpu.symbols.stacks import (
    COMPLETE,
    EXACT,
    MADE,
    NATIVE,
    NO_MAPPING,
    PYTHON,
    STOPS,
    FileNames,
    StackNamer,
)
from otel_gpu.unwind.address_space import load_bias, open_elf, open_root, regions
from otel_gpu.unwind.loader import WalkedProcess
from otel_gpu.unwind.python_layout import code_checksum, layout_for
from otel_gpu.unwind.python_process import PythonProcess


@pytest.fixture
def namer() -> StackNamer:
    process = WalkedProcess(os.getpid(), regions=regions(os.getpid()))
    for region in process.regions:
        if region.path.startswith("/"):
            with open_elf(process.pid, region) as elf:
                process.biases[region] = load_bias(elf, region)
    return StackNamer(process, FileNames())


def _raw(*frames: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<QQ", address, kind << 56) for address, kind in frames)


def _address(name: str) -> int:
    return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0


def test_a_return_address_is_named_by_the_call_before_it(namer: StackNamer) -> None:
    start = _address("qsort")

    exact, inside = namer.stack(_raw((start, EXACT), (start + 1, NATIVE)), COMPLETE)

    assert exact.function == inside.function == "qsort"
    assert exact.address == inside.address
    # One that begins where a function does belongs to what lies before.
    assert namer.stack(_raw((start, NATIVE)), COMPLETE)[0].function != "qsort"


def test_the_files_of_a_process_that_has_ended_still_name_its_frames() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        while not any(r.path.endswith("/sleep") for r in regions(child.pid)):
            time.sleep(0.001)
        process = WalkedProcess(child.pid, open_root(child.pid), regions(child.pid))
        for region in process.regions:
            if region.path.startswith("/"):
                with open_elf(process.pid, region) as elf:
                    process.biases[region] = load_bias(elf, region)
        child.kill()
    assert process.root is not None
    region = next(r for r in process.biases if r.path.endswith("/sleep"))

    (frame,) = StackNamer(process, FileNames()).stack(_raw((region.start + 64, EXACT)), COMPLETE)
    os.close(process.root)
    process.root = None
    (unknown,) = StackNamer(process, FileNames()).stack(_raw((region.start + 64, EXACT)), COMPLETE)

    assert frame.mapping is not None
    assert frame.mapping.build_id or frame.mapping.htlhash
    assert unknown.mapping == FileMapping(region.path)


def test_why_a_stack_ends_early_is_its_root(namer: StackNamer) -> None:
    for stop, reason in STOPS.items():
        stack = namer.stack(_raw((_address("qsort"), EXACT)), stop)

        assert is_truncated(stack)
        assert stack[-1].function == f"[truncated: {reason}]"
    assert STOPS[NO_MAPPING] == "an address in no known mapping"


def test_code_made_at_run_time_has_one_name_wherever_it_is(namer: StackNamer) -> None:
    first, second = namer.stack(_raw((0x1000, MADE), (0x2000, MADE)), COMPLETE)

    assert first == second
    assert first.function == "[code made at run time]"


def test_an_address_that_is_nowhere_keeps_its_number(namer: StackNamer) -> None:
    (frame,) = namer.stack(_raw((0x1234, NATIVE)), COMPLETE)

    assert (frame.function, frame.address, frame.kind) == ("", 0x1234, FrameKind.NATIVE)


def test_a_python_frame_of_a_process_whose_python_is_unknown_says_so(namer: StackNamer) -> None:
    (frame,) = namer.stack(_raw((id(sys._getframe().f_code), PYTHON)), COMPLETE)

    assert frame.kind is FrameKind.CPYTHON
    assert "unreadable" in frame.function
    assert namer.unresolved == {"gone": 1}


@pytest.mark.skipif(not (3, 11) <= sys.version_info < (3, 13), reason="later versions' layout needs their own memory")
def test_a_code_object_is_known_by_its_checksum() -> None:
    layout = layout_for(sys.version_info[:2])
    python = PythonProcess(layout, (), 0, 0, 0, 0, id(types.CodeType))
    process = WalkedProcess(os.getpid(), python=python)
    namer = StackNamer(process, FileNames())
    frame = sys._getframe()
    code, lasti = frame.f_code, frame.f_lasti

    def raw(checksum: int) -> bytes:
        return struct.pack("<QQ", id(code) | checksum >> 16 << 48, PYTHON << 56 | (checksum & 0xFFFF) << 32 | lasti)

    checksum = code_checksum(code.co_argcount, code.co_kwonlyargcount, code.co_flags, code.co_firstlineno)
    (named,) = namer.stack(raw(checksum), COMPLETE)
    (other,) = namer.stack(raw(checksum ^ 1), COMPLETE)

    assert (named.function, named.filename) == (code.co_qualname, code.co_filename)
    assert code.co_firstlineno < named.line <= frame.f_lineno
    # Another object's: the address has been given away since.
    assert other.function == "[unreadable Python frame: stale]"
    namer.forget_python()
    assert namer.stack(raw(checksum), COMPLETE) == (named,)
    namer.close()
