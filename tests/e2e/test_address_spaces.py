"""Are stacks right while a process's code is still becoming known, and where it has more of it than usual?"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import CPU, Frame, FrameKind, Profile, Stack, is_truncated
from otel_gpu.stacks.symbols.stacks import STOPS
from tests.e2e.native_builds import Build
from tests.e2e.processes import Program
from tests.e2e.samples import record_samples, record_until, stacks_of
from tests.e2e.stack_truth import Places, one_phase
from tests.e2e.trails import assert_equal

BUILD = Build("O2", link=("-Wl,-z,lazy",))
_MAPPINGS = 9000
_STARTS_LATE = """
#include <unistd.h>
__attribute__((constructor)) static void wait(void) { write(1, "{\\"event\\": \\"ready\\"}\\n", 19); read(0, &(char){0}, 1); }
"""
_BUSY = "def busy():\n while True: sum(range(1000))\nbusy()"


def test_a_table_that_comes_late_cuts_stacks_and_invents_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program_file = BUILD.make(tmp_path)
    late = shutil.copy(tmp_path / "liblate.so", tmp_path / "opened_later.so")
    with Program([program_file, "late", late], tmp_path) as program:
        program.ready()
        said, stacks = one_phase(program)
        places = Places(program.pid)

    assert stacks.keys() == said.keys()
    cut = []
    for kernel, addresses in said.items():
        stack, truth = stacks[kernel], [places.of(a) for a in addresses]
        cut.append(is_truncated(stack))
        if cut[-1]:
            assert stack[-1].function in {f"[truncated: {STOPS[why]}]" for why in (3, 4)}
            # All but the last frame, whose file is not known yet.
            known = [f for f in stack[:-1] if f.mapping is not None]
            assert len(stack) - 1 - len(known) <= 1
            assert [f.address + 1 for f in known[2:]] == [a for _, a in truth[: len(known) - 2]]
        else:
            assert_equal(truth, stack, str(program_file))
            assert "from_library" in [f.function for f in stack]
    assert cut[0], "the library was known before it was mapped"
    assert not any(cut[cut.index(False) :]), "a table went away again"
    assert not all(cut)


def test_a_process_with_more_mappings_than_are_kept_has_whole_stacks(tmp_path: Path) -> None:
    program_file = BUILD.make(tmp_path)
    with Program([program_file, "many", str(_MAPPINGS)], tmp_path) as program:
        program.ready()
        said, stacks = one_phase(program)
        places = Places(program.pid)

    assert_equal([places.of(a) for a in said["all"]], stacks["all"], str(program_file))


def _on_cpu(program_file: Path, what: str, is_sought: Callable[[Frame], bool]) -> tuple[list[int], list[Stack], Places]:
    """Record a program that spins until it was seen where it is sought, too."""
    with Program([program_file, what, "300"], program_file.parent) as program:
        said = program.event("spinning")["stack"]
        with Recording(program.pid, (CPU,)) as recorder:
            profiles = record_until(
                recorder,
                lambda found: (
                    sum(p.total for p in found) >= 120 and any(is_sought(stack[0]) for stack in stacks_of(found))
                ),
            )
        assert isinstance(said, list)
        return said, stacks_of(profiles), Places(program.pid)


def test_code_of_the_vdso_is_named_and_walked(tmp_path: Path) -> None:
    program_file = BUILD.make(tmp_path)

    def is_in_vdso(frame: Frame) -> bool:
        return frame.mapping is not None and frame.mapping.path == "[vdso]"

    said, stacks, places = _on_cpu(program_file, "clock", is_in_vdso)

    truth = [places.of(a) for a in said]
    assert [s[-1].function for s in stacks if is_truncated(s)] == []
    inside = [s for s in stacks if is_in_vdso(s[0])]
    assert inside
    for stack in inside:
        assert stack[0].function.startswith("__vdso_")
        own = [f for f in stack if f.mapping is not None and f.mapping.path == str(program_file)]
        assert own[0].function == "ask_the_clock"
        assert [(str(program_file), f.address + 1) for f in own[1:5]] == truth[:4]


def test_a_stack_taken_in_a_linkage_stub_goes_on_to_its_caller(tmp_path: Path) -> None:
    program_file = BUILD.make(tmp_path)
    with ElfFile(program_file) as elf:
        stubs = [(s.vaddr, s.vaddr + s.size) for s in elf.sections if s.name.startswith(".plt")]

    def is_in_stub(frame: Frame) -> bool:
        is_own = frame.mapping is not None and frame.mapping.path == str(program_file)
        return is_own and any(start <= frame.address < end for start, end in stubs)

    said, stacks, places = _on_cpu(program_file, "calls", is_in_stub)

    truth = [places.of(a) for a in said]
    assert [s[-1].function for s in stacks if is_truncated(s)] == []
    in_stub = 0
    for stack in stacks:
        own = [f for f in stack if f.mapping is not None and f.mapping.path == str(program_file)]
        if is_in_stub(own[0]):
            in_stub += 1
            own.pop(0)
        assert own[0].function == "call_small"
        assert [(str(program_file), f.address + 1) for f in own[1:5]] == truth[:4]
    assert in_stub


def _wait_for_python(recorder: Recording) -> None:
    def is_found(profiles: list[Profile]) -> bool:
        return any(frame.kind is FrameKind.CPYTHON for stack in stacks_of(profiles) for frame in stack)

    assert is_found(record_until(recorder, is_found)), "the interpreter was never found"


def test_an_interpreter_that_starts_late_is_found_then(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    source, library = tmp_path / "late.c", tmp_path / "late.so"
    source.write_text(_STARTS_LATE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    with Program([sys.executable, "-c", _BUSY], tmp_path, {"LD_PRELOAD": str(library)}) as program:
        program.ready()
        with Recording(program.pid, (CPU,)) as recorder:
            early = recorder.record(1)
            program.go()
            _wait_for_python(recorder)
            late = record_samples(recorder, 20)

    assert not [p for p in early if p.samples]
    stacks = [s.stack for p in late for s in p.samples]
    assert stacks
    for stack in stacks:
        assert [f.function for f in stack if f.kind is FrameKind.CPYTHON] == ["busy", "<module>"]
