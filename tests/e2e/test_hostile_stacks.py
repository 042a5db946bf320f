"""Programs whose stacks, frames and interpreters are nonsense: a reason, bounded, and never a crash."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gpu.discovery.processes import ProcessTable
from otel_gpu.receivers.cuda.loading import CudaPrograms
from otel_gpu.receivers.cuda.receiver import CudaReceiver
from otel_gpu.receivers.profiles.receiver import ProfileReceiver
from otel_gpu.sandbox.parsers import Parsers
from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import CPU, GPU_LAUNCHES, FrameKind, Profile, is_truncated
from otel_gpu.stacks.symbols.stacks import STOPS
from tests.cpythons import Interpreter, interpreters
from tests.e2e import ground
from tests.e2e.processes import Program
from tests.e2e.samples import record_until, stacks_of
from tests.e2e.stack_truth import captured

_REASONS = {f"[truncated: {reason}]" for reason in STOPS.values()}
_MAX_FRAMES = 512
_FRAME = {11: [56, 8], 12: [56, 0], 13: [72]}
"""From the thread state to the innermost frame."""
_HERE = [i for i in interpreters() if i.minor in _FRAME and not i.missing and "chroot" not in i.command]


def _built(source: str, output: Path) -> Path:
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    flags = ["-O1", "-g0", "-shared", "-fPIC", "-Wl,-Bsymbolic"]
    subprocess.run([compiler, *flags, "-o", output, ground.PROGRAMS / source], check=True)
    return output


@pytest.mark.parametrize("interpreter", _HERE, ids=lambda i: i.name)
def test_nonsense_in_frames_ends_a_stack_with_a_reason(interpreter: Interpreter, tmp_path: Path) -> None:
    helper = _built("hostile_frames.c", tmp_path / "helper.so")
    frame = 32 if interpreter.minor == 11 else 0
    offsets = {"frame": _FRAME[interpreter.minor], "code": frame, "previous": 48 if interpreter.minor == 11 else 8}
    command = [*interpreter.command, ground.PROGRAMS / "hostile_frames.py", helper, json.dumps(offsets)]
    with Program(command, tmp_path) as program:
        program.ready()
        with Recording(program.pid, (GPU_LAUNCHES,)) as recorder:
            recorder.start()
            program.run_phase()  # tables of what it imports at first
            assert recorder.settle()
            recorder.start()

            kernels = program.run_phase()["kernels"]

            stacks = captured(recorder.finish())
    assert sorted(stacks) == kernels
    for kernel, stack in stacks.items():
        assert 1 <= len(stack) <= _MAX_FRAMES + 1
        assert not is_truncated(stack) or stack[-1].function in _REASONS
        python = [f for f in stack if f.kind is FrameKind.CPYTHON]
        # Only what the program really has, or a frame that says it could not be read.
        assert all(f.filename.endswith(".py") or "unreadable" in f.function for f in python), (kernel, python)
    # A chain that ends early, never one that goes on for ever.
    assert is_truncated(stacks["previous_itself"])
    assert is_truncated(stacks["previous_odd"])


def test_a_library_that_only_says_it_is_python_costs_its_process_no_stack(tmp_path: Path) -> None:
    library = _built("false_python.c", tmp_path / "libpython3.14.so.1.0")
    code = f'import ctypes\nf = ctypes.PyDLL({str(library)!r}).run\nprint(\'{{"event": "ready"}}\', flush=True)\nwhile 1: f(9999)'
    with Program([sys.executable, "-c", code], tmp_path) as program:
        program.ready()
        with Recording(program.pid, (CPU,)) as recorder:
            profiles = record_until(recorder, _shows_the_library)

    assert _shows_the_library(profiles)


def _shows_the_library(profiles: list[Profile]) -> bool:
    return any(f.function in ("run", "_PyEval_EvalFrameDefault") for stack in stacks_of(profiles) for f in stack)


@pytest.fixture
def receiver() -> Iterator[ProfileReceiver]:
    table = ProcessTable({})
    with Parsers() as parsers:
        cuda = CudaReceiver(table, parsers, CudaPrograms(map_entries=1024))
        profile = ProfileReceiver(table, parsers, (CPU,), tables=cuda.tables, kernel_name=lambda _process, _handle: "")
        yield profile
        profile.close()
        cuda.close()


def test_processes_that_vanish_while_they_are_learnt_leave_nothing(receiver: ProfileReceiver) -> None:
    luck = random.Random(1)
    for _ in range(40):
        process = subprocess.Popen([sys.executable, "-c", "import json, ctypes, asyncio; input()"], stdin=-1)
        time.sleep(luck.random() / 20)
        receiver.observe(process.pid)
        time.sleep(luck.random() / 50)
        process.kill()
        process.communicate()
        receiver.loader.watch(process.pid)

    assert receiver.loader.settle(60)
    assert receiver.loader.known() == 0
