"""Which CPythons are on this machine, and where do their threads stand? The oracle of the Python stack tests.

pyenv's builds (shared), Debian's (static), and those of an unstable root made by `tests/ground/sid.sh` (3.14 and
3.15, static, and shared through a launcher). A version that is missing is named with the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from otel_gpu.sandbox.elf import PT_LOAD, ElfFile

HERE = Path(__file__).parent
PROGRAM = HERE / "programs" / "python_situations.py"
LINES = HERE / "programs" / "python_lines.py"
CHURN = HERE / "programs" / "python_churn.py"
WAYS = HERE / "programs" / "ways_to_call.py"
IN_SHORT = (8, 11, 14, 15)
"""Minor versions that `make test` runs: the oldest, Debian's, and both with offsets for debuggers that differ."""
SYMBOLS = ("_PyRuntime", "PyCode_Type", "PyUnicode_Type")


@dataclass(frozen=True)
class Interpreter:
    """One CPython: how to run it, or why it cannot be run."""

    name: str
    minor: int
    command: tuple[str, ...] = ()
    programs: str = str(PROGRAM.parent)
    """Where the interpreter, which may have another root, finds the test programs."""
    missing: str = ""
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def is_in_short(self) -> bool:
        """Whether `make test` runs it; `make test-all` runs every one."""
        return self.minor in IN_SHORT


@dataclass(frozen=True)
class ThreadTruth:
    """What the program says of one of its threads; a frame is (name, file, line, lasti, first line) and what makes its
    code's checksum: argument count, keyword-only count, flags."""

    name: str
    tid: int
    ident: int
    frames: list[tuple[str, str, int | None, int, int, int, int, int]]


@dataclass(frozen=True)
class Image:
    """The mapped file that holds the interpreter, with the symbols that walkers need, at their addresses."""

    path: str
    bias: int
    symbols: dict[str, int]


def interpreters(*, with_jit: bool = False) -> list[Interpreter]:
    """List every CPython from 3.8 to 3.15 that is here, and one entry for each version that is not.

    `with_jit` adds those that have a JIT (Debian's 3.14 and 3.15) once more, with it.
    """
    found = [*_pyenv(), *_debian(), *_sid()]
    if with_jit:
        jits = [i for i in found if i.minor >= 14 and i.name.startswith("sid")]
        found += [replace(i, name=f"{i.name}-jit", environment=(("PYTHON_JIT", "1"),)) for i in jits]
    absent = set(range(8, 16)) - {i.minor for i in found}
    return found + [Interpreter(f"3.{m}", m, missing=f"no CPython 3.{m} on this machine") for m in sorted(absent)]


def _pyenv() -> list[Interpreter]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = []
    for path in sorted(root.glob("3.*/bin/python3")):
        match = re.fullmatch(r"3\.(\d+)\.\d+", path.parent.parent.name)
        if match and 8 <= int(match[1]) <= 15:
            found.append(Interpreter(f"pyenv-{match[0]}", int(match[1]), (str(path),)))
    return found


def _debian() -> list[Interpreter]:
    return [
        Interpreter(f"debian-3.{m}", m, (path,))
        for m in range(8, 16)
        if os.path.exists(path := f"/usr/bin/python3.{m}")
    ]


def _sid() -> list[Interpreter]:
    kinds = [(minor, shared) for minor in (14, 15) for shared in (False, True)]
    names = {k: f"sid-3.{k[0]}-{'shared' if k[1] else 'static'}" for k in kinds}
    # `make ground` makes the root and what tests run in it: nothing is made while tests are collected.
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "otel-gpu" / "sid"
    if os.getuid() != 0:
        return [Interpreter(names[k], k[0], missing="chroot needs root") for k in kinds]
    if missing := _missing_in(root):
        return [Interpreter(names[k], k[0], missing=f"{missing}: run tests/ground/sid.sh once") for k in kinds]
    found = []
    for minor, shared in kinds:
        command = ["chroot", str(root), f"/usr/bin/python3.{minor}"]
        if shared:
            command[2:] = ["/tmp/python_launcher", f"libpython3.{minor}.so.1.0"]
        found.append(Interpreter(names[minor, shared], minor, tuple(command), "/tmp"))
    return found


def _missing_in(root: Path) -> str:
    """Return what a root of sid.sh lacks, or nothing."""
    if not (root / ".complete").exists():
        return "no Debian unstable root"
    if not (root / "tmp" / "python_launcher").exists():
        return "no launcher of shared CPythons"
    for program in (PROGRAM, WAYS, LINES, CHURN):
        placed = root / "tmp" / program.name
        if not placed.exists() or placed.read_bytes() != program.read_bytes():
            return f"{program.name} is not what it is here"
    return ""


def line_tables(interpreter: Interpreter) -> list[tuple[bytes, int, list[tuple[int, int, int | None]]]]:
    """Return (table, first line, [(start, end, line)]) of many code objects, as this interpreter sees them."""
    command = [*interpreter.command, f"{interpreter.programs}/{LINES.name}"]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return [(bytes.fromhex(table), first, ranges) for table, first, ranges in map(json.loads, output.splitlines())]


class Situations:
    """The situations program, run by one interpreter until the context ends."""

    def __init__(self, interpreter: Interpreter) -> None:
        # The root of another Debian has no /proc mounted.
        proc = os.open("/proc", os.O_RDONLY)
        self._process = subprocess.Popen(
            [*interpreter.command, f"{interpreter.programs}/{PROGRAM.name}", str(proc)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(proc,),
            env={**os.environ, **dict(interpreter.environment)},
        )
        os.close(proc)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self._output: IO[bytes] = self._process.stdout
        self.version: tuple[int, int, int] = (0, 0, 0)
        self.threads: list[ThreadTruth] = []

    def __enter__(self) -> Situations:
        said = json.loads(self._output.readline())
        self.version = tuple(said["version"])
        self.threads = [
            ThreadTruth(t["name"], t["tid"], t["ident"], [tuple(f) for f in t["frames"]]) for t in said["threads"]
        ]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def image(self) -> Image:
        """Find the interpreter among the mappings, and the addresses of its symbols."""
        return find_image(self.pid)


@contextlib.contextmanager
def churning(interpreter: Interpreter) -> Iterator[int]:
    """Run the program that makes and frees code objects; yields its pid."""
    command = [*interpreter.command, f"{interpreter.programs}/{CHURN.name}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def find_image(pid: int) -> Image:
    """Find the interpreter among a process's mappings, and the addresses of its symbols."""
    with open(f"/proc/{pid}/maps") as maps:
        rows = [line.split(None, 5) for line in maps]
    first: dict[str, int] = {}
    for row in rows:
        if len(row) == 6 and "python" in row[5]:
            first.setdefault(row[5].strip(), int(row[0].split("-")[0], 16))
    for path, start in first.items():
        if not re.search(r"/(lib)?python3[^/]*$", path):
            continue
        with ElfFile(path) as elf:
            values = {s.name: s.value for s in elf.symbols() if s.name in SYMBOLS}
            lowest = min(s.vaddr for s in elf.segments if s.type == PT_LOAD)
        if "_PyRuntime" in values:
            bias = start - (lowest & ~0xFFF)
            return Image(path, bias, {name: value + bias for name, value in values.items()})
    raise LookupError(f"process {pid} maps no CPython")
