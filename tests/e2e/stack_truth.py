"""What do programs say of their own stacks, and what was captured of them? Both in one form, to be compared."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import GPU_LAUNCHES, Frame, FrameKind, Profile, Stack, is_truncated
from otel_gpu.stacks.unwind.table_work import shape_of
from tests import cpythons
from tests.cpythons import Interpreter
from tests.e2e import ground
from tests.e2e.processes import Program

_PROGRAM = ground.PROGRAMS / "python_launches.py"
_MODULES = [ground.PROGRAMS / f"{name}.py" for name in ("greenlets", "interpreters", "launcher", "ways_to_call")]
_HELPER = ground.PROGRAMS / "native_truth.c"
PythonFrame = tuple[str, str, int]
Address = tuple[str, int]
"""A file, and a link-time address in it."""


@dataclass(frozen=True)
class Truth:
    """One stack as the program saw it, innermost first."""

    python: list[PythonFrame]
    native: list[Address]
    """Return addresses; the first is in the function that launched."""


@contextmanager
def launching(interpreter: Interpreter, directory: Path, packages: Path | None = None) -> Iterator[Program]:
    """Run the program of situations under an interpreter, which may have a root of its own; yields it when it is ready.

    It finds what is in `packages`.
    """
    if interpreter.missing:
        pytest.skip(interpreter.missing)
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    root, inside = directory, str(directory)
    if "chroot" in interpreter.command:
        root = Path(interpreter.command[1]) / "tmp" / f"launches-{os.getpid()}"
        inside = f"/tmp/{root.name}"
    root.mkdir(exist_ok=True)
    try:
        flags = ["-O1", "-g0", "-fomit-frame-pointer", "-shared", "-fPIC", "-pthread"]
        subprocess.run([compiler, *flags, "-o", root / "helper.so", _HELPER], check=True)
        # Copies: files of their own, as those of another root are.
        shutil.copy(root / "helper.so", root / "late.so")
        for source in (_PROGRAM, *_MODULES):
            shutil.copy(source, root)
        if packages is not None:
            shutil.copytree(packages, root, dirs_exist_ok=True)
        shutil.copy(ground.part("mock") / "libcuda.so.1", root / "libcuda.so.1")
        words = [f"{inside}/{name}" for name in (_PROGRAM.name, "helper.so", "late.so")]
        environment = {"LD_LIBRARY_PATH": inside, "MOCKCUDA_TRUTH": "", **dict(interpreter.environment)}
        with Program([*interpreter.command, *words], directory, environment) as program:
            program.ready()
            yield program
    finally:
        if root != directory:
            shutil.rmtree(root)


def truths(event: Mapping[str, object]) -> dict[str, Truth]:
    """Read an event's stacks; the process must still have the mappings it had."""
    stacks, pid = event["stacks"], event["pid"]
    assert isinstance(stacks, dict)
    assert isinstance(pid, int)
    places = Places(pid)
    return {
        kernel: Truth([(n, f, ln) for n, f, ln in said["python"]], [places.of(a) for a in said["native"]])
        for kernel, said in stacks.items()
    }


def captured(profiles: Iterable[Profile]) -> dict[str, Stack]:
    """Return the one stack of each kernel."""
    found: dict[str, Stack] = {}
    for profile in profiles:
        for sample in profile.samples:
            leaf, *stack = sample.stack
            assert leaf.kind is FrameKind.CUDA, sample
            assert leaf.function not in found, f"{leaf.function} has two stacks"
            assert sample.value == 1
            found[leaf.function] = tuple(stack)
    return found


def one_phase(program: Program) -> tuple[dict[str, list[int]], dict[str, Stack]]:
    """Record a phase: what the program says of its stacks, as addresses, and what was captured, by kernel."""
    with Recording(program.pid, (GPU_LAUNCHES,)) as recorder:
        assert recorder.settle()
        recorder.start()
        said = program.run_phase()["stacks"]
        assert isinstance(said, dict)
        return said, captured(recorder.finish())


def python_part(stack: Stack) -> list[PythonFrame]:
    """Return the Python frames of a captured stack."""
    return [(f.function, f.filename, f.line) for f in stack if f.kind is FrameKind.CPYTHON]


def assert_native_part(truth: list[Address], stack: Stack, interpreter_file: str) -> None:
    """Compare native frames: in order, none invented, and none missing but the interpreter's own."""
    assert not is_truncated(stack), stack[-1].function
    native = [f for f in stack if f.kind is FrameKind.NATIVE]
    assert native[0].function == "cuLaunchKernel"
    assert native[1].function == "launch_here"
    rest = native[2:]
    for path, address in truth[1:]:
        if rest and _is_at(rest[0], path, address):
            rest.pop(0)
        else:
            assert path == interpreter_file, f"{path}+{address:#x} is missing; next captured: {rest[:1]}"
    assert not rest, f"not in the truth: {rest}"
    assert _is_at(native[-1], *truth[-1]), "it does not reach the thread's start"


def _is_at(frame: Frame, path: str, address: int) -> bool:
    # A call's frame is at the call; the frame that a signal interrupted is where it stood.
    return frame.mapping is not None and frame.mapping.path == path and frame.address in (address - 1, address)


def interpreter_file(pid: int) -> str:
    """Return the file that holds the interpreter, as the process's mappings name it."""
    return cpythons.find_image(pid).path


class Places:
    """Turns addresses of a process into files' own."""

    def __init__(self, pid: int) -> None:
        self._mappings: list[tuple[int, int, int, str]] = []
        self._lowest: dict[str, int] = {}
        base: dict[str, int] = {}
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            for line in maps:
                words = line.split(None, 5)
                path = words[5].strip() if len(words) > 5 else ""
                start, end = (int(word, 16) for word in words[0].split("-"))
                self._mappings.append((start, end, base.setdefault(path, start), path))

    def of(self, address: int) -> Address:
        for start, end, base, path in self._mappings:
            if start <= address < end:
                return path, address - base + self._lowest_of(path)
        return "", address

    def _lowest_of(self, path: str) -> int:
        if path not in self._lowest:
            self._lowest[path] = 0
            if path.startswith("/"):
                with ElfFile(path) as elf:
                    self._lowest[path] = shape_of(elf).base & ~0xFFF
        return self._lowest[path]
