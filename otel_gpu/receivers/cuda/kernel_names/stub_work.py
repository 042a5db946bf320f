"""What do files say of the kernels in them? Asked of children without rights: their outlines first, then their stubs."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from ....errors import ElfError
from ....sandbox.confinement import Limits
from ....sandbox.elf import PT_LOAD, ElfFile
from ....sandbox.work import OpenFile, work
from ....signals.structs import Frozen
from ....stacks.unwind.shape import Shape
from .host_part import HostPart
from .stub_map import StubMap

OUTLINES = Limits(answer_s=2.0, cpu_s=20, memory_bytes=256 << 20, answer_bytes=16 << 20)
STUBS = Limits(answer_s=20.0, cpu_s=30, memory_bytes=2 << 30, answer_bytes=64 << 20)
"""The largest library of PyTorch, of 450 MB, takes a second of a quiet machine, and its stubs 7 MB."""
_FAILURES = (ElfError, struct.error, ValueError, IndexError)


class Outline(Frozen):
    """How a library is laid out, and whether it has code for GPUs."""

    shape: Shape
    end: int = 0
    """Link-time address behind its last byte."""
    has_device_code: bool = False


@work(type(None), Outline)
def outlines(files: Sequence[OpenFile], _: None) -> Iterator[Outline]:
    """Yield the outline of each file."""
    for file in files:
        if file.descriptor >= 0:
            yield _outline(file)


def _outline(file: OpenFile) -> Outline:
    from ....stacks.unwind.table_work import shape_of  # here, because the agent itself works nothing out

    try:
        elf = ElfFile.of(file, file.path)
        end = max((s.vaddr + s.mem_size for s in elf.segments if s.type == PT_LOAD), default=0)
        return Outline(shape_of(elf), end, HostPart(file, file.path).has_device_code)
    except _FAILURES as e:
        return Outline(Shape(is_elf=False, reason=str(e)))


class NamedStubs(Frozen):
    """A file's kernels under a name that is a hash of all they are read from; empty where they cannot be kept."""

    name: str
    stubs: StubMap | None = None
    """None: they are kept under that name already, or the next answer has them."""


@work(frozenset[str], NamedStubs)
def stub_map(files: Sequence[OpenFile], kept: frozenset[str]) -> Iterator[NamedStubs]:
    """Yield the name of a file's kernels, and then them, if they are not kept under it."""
    from .stubs import read_stub_map  # here, because the agent itself works nothing out

    for file in files:
        part = HostPart(file, file.path)
        name = part.name()
        yield NamedStubs(name)
        if name not in kept:
            yield NamedStubs(name, read_stub_map(ElfFile.of(part, file.path)))


@work(type(None), str)
def content_names(files: Sequence[OpenFile], _: None) -> Iterator[str]:
    """Yield a hash of each file's content; empty for one that is too large for it."""
    for file in files:
        if file.descriptor >= 0:
            yield HostPart(file, file.path).name()
