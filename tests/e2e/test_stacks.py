"""Are captured stacks what the program itself says they are? For every CPython, in every situation."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import GPU_LAUNCHES, FrameKind, Stack, is_truncated
from tests.cpythons import Interpreter, interpreters
from tests.e2e import ground
from tests.e2e.processes import Program
from tests.e2e.stack_truth import (
    PythonFrame,
    Truth,
    assert_native_part,
    captured,
    interpreter_file,
    launching,
    python_part,
    truths,
)

_ALL = interpreters()
_JITS = [i for i in interpreters(with_jit=True) if i.environment]
EVERY = pytest.mark.parametrize("interpreter", _ALL, ids=lambda i: i.name)
NEWEST = pytest.mark.parametrize(
    "interpreter", [next(i for i in _ALL if i.minor == m) for m in (11, 14, 15)], ids=lambda i: i.name
)
TOO_DEEP = {"too_deep_released", "too_deep_held"}
ENDED = "[truncated: more interpreter activations than Python frames]"
STALE = "[truncated: a return address that leads to no code]"
WITHOUT_OWNER = {9: {"profiled_amid_interpreters_released", "profiled_amid_interpreters_held"}}
"""By minor version: at the first event of a closure that is profiled, nothing says yet whose activation it is."""


def _order(program: Program, order: str) -> dict[str, object]:
    program.process.stdin.write(order + "\n")
    program.process.stdin.flush()
    return program.event("phase")


def _launch(program: Program, recorder: Recording, order: str = "launch") -> tuple[dict[str, Truth], dict[str, Stack]]:
    recorder.start()
    truth = truths(_order(program, order))
    stacks = captured(recorder.finish())
    assert stacks.keys() == truth.keys()
    return truth, stacks


def _assert_all(
    truth: Mapping[str, Truth],
    stacks: Mapping[str, Stack],
    image: str,
    *,
    native: bool = True,
    left_out: Collection[str] = TOO_DEEP,
) -> None:
    """Compare every stack, so that one run shows all that is wrong."""
    problems = []
    for kernel in truth.keys() - left_out:
        try:
            assert python_part(stacks[kernel]) == truth[kernel].python
            assert not is_truncated(stacks[kernel]), stacks[kernel][-1].function
            if native:
                assert_native_part(truth[kernel].native, stacks[kernel], image)
        except AssertionError as e:
            problems.append(f"{kernel}: {e}")
    assert not problems, "\n\n".join(problems)


@EVERY
def test_every_stack_is_what_the_program_says(interpreter: Interpreter, tmp_path: Path) -> None:
    with launching(interpreter, tmp_path) as program, Recording(program.pid, (GPU_LAUNCHES,)) as recorder:
        _order(program, "load")
        assert recorder.settle()

        truth, stacks = _launch(program, recorder)

        without_owner = WITHOUT_OWNER.get(interpreter.minor, set())
        _assert_all(truth, stacks, interpreter_file(program.pid), left_out=TOO_DEEP | without_owner)
        for kernel in TOO_DEEP:
            assert len(_cut(stacks[kernel], truth[kernel], "deeper than the walker follows")) > 128
        for kernel in without_owner:
            _cut(stacks[kernel], truth[kernel], "an interpreter activation that no thread state owns")
        _assert_order(stacks["call_back_twice_held"])


def _cut(stack: Stack, truth: Truth, reason: str) -> list[PythonFrame]:
    """Return the Python frames of a stack that was cut short: the innermost of the true one."""
    assert stack[-1].function == f"[truncated: {reason}]"
    python = python_part(stack)
    assert python == truth.python[: len(python)]
    return python


def _assert_order(stack: Stack) -> None:
    """C and Python take turns as they called each other."""
    outer = "call_back_twice"
    ours = [
        f.function.replace("<locals>.", "")
        for f in stack
        if f.kind is FrameKind.CPYTHON or (f.mapping is not None and f.mapping.path.endswith("helper.so"))
    ]
    expected = ["launch_here", "launch", "launch_from_here", f"{outer}.<lambda>", "call_back", f"{outer}.between"]
    expected += ["call_back", outer]
    # Before 3.11 code objects hold bare names only.
    assert [name.rpartition(".")[2] for name in ours[: len(expected)]] == [name.rpartition(".")[2] for name in expected]


@pytest.mark.parametrize("interpreter", _JITS, ids=lambda i: i.name)
def test_code_that_the_jit_made_does_not_end_a_stack(interpreter: Interpreter, tmp_path: Path) -> None:
    with launching(interpreter, tmp_path) as program, Recording(program.pid, (GPU_LAUNCHES,)) as recorder:
        _order(program, "load")
        assert recorder.settle()

        truth, stacks = _launch(program, recorder)

        # backtrace() itself cannot walk it.
        _assert_all(truth, stacks, interpreter_file(program.pid), native=False)
        assert any(f.function == "[code made at run time]" for stack in stacks.values() for f in stack)


@EVERY
def test_a_greenlet_has_its_own_frames_and_the_stack_says_that_they_end(
    interpreter: Interpreter, tmp_path: Path
) -> None:
    packages = ground.greenlet(interpreter.minor)
    with (
        launching(interpreter, tmp_path, packages) as program,
        Recording(program.pid, (GPU_LAUNCHES,)) as recorder,
    ):
        _order(program, "load")
        assert recorder.settle()

        truth, stacks = _launch(program, recorder, "greenlets")

        assert len(truth) == 12
        for kernel, said in truth.items():
            if kernel.startswith("after"):
                assert python_part(stacks[kernel]) == said.python
                assert not is_truncated(stacks[kernel])
            else:
                assert python_part(stacks[kernel]) == said.python
                # Below the root of one that was resumed lies what others left.
                resumed = {STALE} if "resumed" in kernel else set()
                assert stacks[kernel][-1].function in {ENDED} | resumed


@NEWEST
def test_a_forked_child_has_stacks_of_its_own(interpreter: Interpreter, tmp_path: Path) -> None:
    with launching(interpreter, tmp_path) as program:
        child = _order(program, "fork")["pid"]
        assert isinstance(child, int)
        with Recording(child, (GPU_LAUNCHES,)) as recorder:
            _order(program, "load")
            assert recorder.settle()

            truth, stacks = _launch(program, recorder)

            _assert_all(truth, stacks, interpreter_file(child))
        # Both end with their input: the child would outlive a killed parent.
        program.process.stdin.close()
        assert program.wait() == 0


def test_a_build_that_cannot_be_walked_has_native_stacks_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # No free-threaded build can be had here: this is a real one with a lock, whose own description says otherwise.
    interpreter = next((i for i in _ALL if i.minor == 13 and not i.missing), None)
    library = next(Path(interpreter.command[0]).parent.parent.glob("lib/libpython3.13.so.1.0")) if interpreter else None
    if interpreter is None or library is None:
        pytest.skip("no shared CPython 3.13 on this machine")
    _describe_as_free_threaded(library, tmp_path / "patched" / library.name)
    with (
        caplog.at_level(logging.WARNING),
        launching(interpreter, tmp_path, tmp_path / "patched") as program,
        Recording(program.pid, (GPU_LAUNCHES,)) as recorder,
    ):
        _order(program, "load")
        assert recorder.settle()

        truth, stacks = _launch(program, recorder)

        image = interpreter_file(program.pid)
        for kernel in truth.keys() - TOO_DEEP - {"recursion_released", "recursion_held"}:
            assert not python_part(stacks[kernel])
            if not is_truncated(stacks[kernel]):
                assert_native_part(truth[kernel].native, stacks[kernel], image)
    assert caplog.text.count("CPython 3.13 is a free-threaded build") == 1


def _describe_as_free_threaded(library: Path, patched: Path) -> None:
    """Copy an interpreter and change the word `free_threaded` of its `_Py_DebugOffsets`, which it does not read itself."""
    patched.parent.mkdir()
    content = bytearray(library.read_bytes())
    with ElfFile(library) as elf:
        (runtime,) = {s.value for s in elf.symbols(".dynsym") if s.name == "_PyRuntime"}
        offset = next(s.offset + runtime - s.vaddr for s in elf.segments if s.vaddr <= runtime < s.vaddr + s.file_size)
    assert content[offset : offset + 8] == b"xdebugpy"
    content[offset + 16] = 1
    patched.write_bytes(content)


def test_a_process_that_becomes_another_program_is_walked_anew(tmp_path: Path) -> None:
    interpreter = next(i for i in _ALL if i.minor == 11 and "chroot" not in i.command)
    with launching(interpreter, tmp_path) as program, Recording(program.pid, (GPU_LAUNCHES,)) as recorder:
        program.process.stdin.write("exec\n")
        program.process.stdin.flush()
        program.ready()
        _order(program, "load")
        assert recorder.settle()

        recorder.start()
        truth = truths(_order(program, "launch"))
        stacks = captured(recorder.finish()).values()

        whole = [python_part(stack) for stack in stacks if not is_truncated(stack)]
        assert sorted(whole) == sorted(t.python for kernel, t in truth.items() if kernel not in TOO_DEEP)
