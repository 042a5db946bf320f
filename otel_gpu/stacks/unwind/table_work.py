"""What does a file say of its frames? Worked out by children without rights: its shape, its table, parts of it, its Python."""

from __future__ import annotations

import contextlib
import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ...bpf.abi.unwinding import UNWIND_ROW, RowKind
from ...errors import ElfError, OtelGpuError
from ...sandbox.confinement import Limits
from ...sandbox.elf import PF_X, PT_LOAD, ElfFile
from ...sandbox.memory import MemoryFault, ProcessMemory
from ...sandbox.work import OpenFile, service, work
from ...signals.structs import Frozen
from ..cpython.layout import UnsupportedPythonError
from ..cpython.process import NotStartedError, PythonProcess
from ..cpython.process import locate as locate_python
from ..cpython.symbols import holds_python
from ..cpython.text import PythonBinary, analyse_python
from ..eh_frame.index import FrameIndex
from ..eh_frame.pointers import MAX_CODE, describes_most, keeps_frame_pointers
from ..eh_frame.records import FrameSection, locate
from ..eh_frame.rows import UnwindTable
from ..eh_frame.tables import compile_part, compile_table
from .shape import Load, Shape

_MAX_LOADS = 128
_MAX_PYTHON = 512 << 20
"""Bytes of an interpreter's file."""
_BLOCK = 1 << 20
_PART = 32
"""Functions around an address that are compiled together: its neighbours are often needed next."""
_MAX_PC = 1 << 32
"""Rows count in 32 bits."""
_FAILURES = (OtelGpuError, OSError, struct.error, ValueError, IndexError)

SHAPES = Limits(answer_s=2.0, cpu_s=20, memory_bytes=256 << 20, answer_bytes=16 << 20)
TABLES = Limits(answer_s=60.0, cpu_s=60, memory_bytes=2 << 30, answer_bytes=1 << 30)
"""A table of 16 million rows, of 128 MB, takes some eight seconds on a quiet machine."""
PARTS = Limits(answer_s=5.0, cpu_s=600, memory_bytes=1 << 30, answer_bytes=1 << 30)
PYTHON = Limits(answer_s=2.0, cpu_s=5, memory_bytes=128 << 20, answer_bytes=1 << 20)


@work(type(None), Shape)
def shapes(files: Sequence[OpenFile], _: None) -> Iterator[Shape]:
    """Yield how each file is laid out."""
    for file in files:
        if file.descriptor >= 0:
            try:
                yield shape_of(ElfFile.of(file, file.path))
            except (ElfError, struct.error) as e:
                yield Shape(is_elf=False, reason=str(e))


def shape_of(elf: ElfFile) -> Shape:
    """Return how a file is laid out."""
    loads = [Load(s.offset, s.vaddr, s.file_size, bool(s.flags & PF_X)) for s in elf.segments if s.type == PT_LOAD]
    if len(loads) > _MAX_LOADS:
        return Shape(is_elf=True, reason=f"{elf.path}: {len(loads)} loaded segments are not believable")
    size = 0
    with contextlib.suppress(*_FAILURES):
        size = locate(elf)[1]
    return Shape(is_elf=True, loads=tuple(loads), frames_bytes=size)


class FileFrames(Frozen):
    """All that is worked out about one file's frames."""

    rows: bytes = b""
    """Of rows.ROW."""
    end_pc: int = 0
    functions: int = 0
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    why_no_table: str = ""
    keeps_frame_pointers: bool = False
    """Said only of files whose table does not describe most of their code."""
    python: PythonBinary | None = None
    why_no_python: str = ""

    def __post_init__(self) -> None:
        # What a child or a file says of itself is checked where it is read: msgspec refuses what raises ValueError.
        if len(self.rows) % UNWIND_ROW.itemsize or not 0 <= self.end_pc < _MAX_PC:
            raise ValueError("rows or their end that cannot be")

    @property
    def table(self) -> UnwindTable | None:
        """The unwinding table; None where there is none."""
        if self.why_no_table:
            return None
        return UnwindTable(np.frombuffer(self.rows, UNWIND_ROW), self.end_pc, self.functions, self.skipped)


class NamedFrames(Frozen):
    """A file's frames under a name that depends on all they are worked out from."""

    name: str
    frames: FileFrames | None
    """None where they are kept under that name already."""


@work(frozenset[str], NamedFrames)
def frames_of(files: Sequence[OpenFile], kept: frozenset[str]) -> Iterator[NamedFrames]:
    """Yield what there is to know of each file's frames, but for those that are kept already."""
    for file in files:
        if file.descriptor >= 0:
            elf = ElfFile.of(file, file.path)
            name = name_of(elf)
            yield NamedFrames(name, None if name in kept else read_frames(elf))


def name_of(elf: ElfFile) -> str:
    """Name what is worked out about a file by a hash of all that it is worked out from.

    The build id alone would not do: a hostile file may borrow another's.
    """
    digest = hashlib.blake2b(repr((elf.machine, elf.type, elf.entry, elf.segments)).encode(), digest_size=20)
    is_python = _is_python(elf)
    with contextlib.suppress(*_FAILURES):
        offset, size, vaddr = locate(elf)
        digest.update(repr((vaddr, size)).encode())
        for at in range(offset, offset + size, _BLOCK):
            digest.update(elf.read(at, min(_BLOCK, offset + size - at)))
    for segment in elf.segments:
        if segment.type == PT_LOAD and (segment.flags & PF_X or is_python):
            size = min(segment.file_size, _MAX_PYTHON if is_python else MAX_CODE)
            for at in range(0, size, _BLOCK):
                digest.update(elf.peek(segment.offset + at, min(_BLOCK, size - at)))
    if is_python:
        # Its symbols, which are read of a program that exports none, are in no segment; messages name the file.
        digest.update(elf.path.encode("utf-8", "replace"))
        for name in (".symtab", ".strtab"):
            if (section := elf.section(name)) is not None:
                digest.update(repr(section).encode())
                for at in range(0, section.size, _BLOCK):
                    digest.update(elf.peek(section.offset + at, min(_BLOCK, section.size - at)))
    return digest.hexdigest()


def read_frames(elf: ElfFile) -> FileFrames:
    """Work out everything about a file's frames."""
    python, why_no_python = None, ""
    if _is_python(elf):
        try:
            python = analyse_python(elf)
        except UnsupportedPythonError as e:
            why_no_python = str(e)
    try:
        table = compile_table(elf)
    except _FAILURES as e:
        return FileFrames(
            why_no_table=str(e) or type(e).__name__,
            keeps_frame_pointers=keeps_frame_pointers(elf),
            python=python,
            why_no_python=why_no_python,
        )
    return FileFrames(
        np.ascontiguousarray(table.rows).tobytes(),
        table.end_pc,
        table.functions,
        dict(table.skipped),
        keeps_frame_pointers=not describes_most(table, elf) and keeps_frame_pointers(elf),
        python=python,
        why_no_python=why_no_python,
    )


def _is_python(elf: ElfFile) -> bool:
    try:
        return elf.size <= _MAX_PYTHON and holds_python(elf)
    except _FAILURES:
        return False


class Part(Frozen):
    """Rows of a part of a file: they hold from `begin` up to `end`, addresses that count from the file's base."""

    begin: int
    end: int
    rows: bytes

    def __post_init__(self) -> None:
        # As in FileFrames.
        if len(self.rows) % UNWIND_ROW.itemsize or not 0 <= self.begin <= self.end < _MAX_PC:
            raise ValueError("rows or their range that cannot be")


@service(type(None), list[int], list[Part])
def parts(files: Sequence[OpenFile], _: None) -> Callable[[list[int]], list[Part]]:
    """Return what compiles the functions around link-time addresses: long before all of a large file could be compiled."""
    elf = ElfFile.of(files[0], files[0].path)
    section = FrameSection.of(elf)
    index = FrameIndex.of(elf, section)
    base = min((s.vaddr for s in elf.segments if s.type == PT_LOAD), default=0)

    def compile_around(addresses: list[int]) -> list[Part]:
        found: list[Part] = []
        if index is None or not addresses:
            return found
        chosen = _united(index.around(address, _PART) for address in addresses)
        # All at once: one part takes as long as hundreds.
        numbers = np.concatenate([np.arange(first, last) for first, last in chosen])
        table = compile_part(elf, section, index.offsets[numbers])
        rows = np.append(table.rows, np.array([(table.end_pc, 0, RowKind.END, 0)], UNWIND_ROW))
        for first, last in chosen:
            begin = int(index.starts[first]) - base
            end = int(index.starts[last]) - base if last < index.starts.size else table.end_pc
            if 0 <= begin <= end < _MAX_PC:  # the table that says where functions begin may say anything
                found.append(Part(begin, end, _between(rows, begin, end).tobytes()))
        return found

    return compile_around


def _united(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges of numbers, in order, and those as one that meet."""
    united: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if united and first <= united[-1][1]:
            united[-1] = united[-1][0], max(united[-1][1], last)
        else:
            united.append((first, last))
    return united


def _between(rows: npt.NDArray[np.void], begin: int, end: int) -> npt.NDArray[np.void]:
    """Return the rows that hold from one address up to another: of the first one the rule may stand before it."""
    first = max(int(np.searchsorted(rows["pc"], begin, side="right")) - 1, 0)
    mine: npt.NDArray[np.void] = rows[first : int(np.searchsorted(rows["pc"], end))].copy()
    mine["pc"][:1] = np.maximum(mine["pc"][:1], begin)
    return mine


class Interpreter(Frozen):
    """An interpreter in a process: what its file says, and the difference between addresses in the process and in the file."""

    binary: PythonBinary
    bias: int


class FoundPython(Frozen):
    """Where a process keeps its Python frames, or why that is not known."""

    python: PythonProcess | None = None
    has_started: bool = True
    """False: it may be known later."""
    reason: str = ""


@work(list[Interpreter], FoundPython)
def find_python(files: Sequence[OpenFile], interpreters: list[Interpreter]) -> Iterator[FoundPython]:
    """Yield where a process keeps its Python frames: the first interpreter that can be followed. The file is its `mem`."""
    memory = ProcessMemory(files[0].descriptor)
    found = FoundPython()
    for interpreter in interpreters:
        try:
            yield FoundPython(locate_python(interpreter.binary, interpreter.bias, memory))
            return
        except (NotStartedError, MemoryFault):
            # It has not put up what is to be read, or is just doing that.
            found = FoundPython(has_started=False)
        except OtelGpuError as e:
            found = found if not found.has_started else FoundPython(reason=str(e))
    yield found
