"""What do files say of their functions' names? Asked of children without rights: a file's functions first, then names."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import msgspec

from ...errors import ElfError
from ...sandbox.confinement import Limits
from ...sandbox.elf import PF_X, PT_LOAD, ElfFile
from ...sandbox.work import OpenFile, service
from ..demangle.names import demangle
from .build_id import build_id
from .debuglink import DebugLink, belongs, read_link
from .function_index import FunctionIndex, NamePlace
from .native import NativeSymbols

SYMBOLS = Limits(answer_s=10.0, cpu_s=60, memory_bytes=2 << 30, answer_bytes=128 << 20)
_MAX_NAME = 4096


class Question(msgspec.Struct, frozen=True):
    """What is wanted of the file of a number: its functions, or names of these."""

    file: int
    debug: list[int] = []
    """Files that may hold the symbols that were split off, the best first; where names are wanted, the one that does."""
    places: list[NamePlace] | None = None
    """Where the names stand; None: the functions are wanted."""


class FileSymbols(msgspec.Struct, frozen=True):
    """What a file says of itself."""

    build_id: str
    """GNU build id, in hex; empty where it has none."""
    htlhash: str
    segment: tuple[int, int, int]
    """Of its code: where it begins and ends, and where in the file."""
    index: FunctionIndex
    has_own_table: bool
    link: DebugLink
    debug: int = -1
    """Which of the question's files holds its symbols; -1: none."""


class Answer(msgspec.Struct, frozen=True):
    """The functions, the names in the order in which they were asked for, or why there is nothing."""

    symbols: FileSymbols | None = None
    names: list[str] = []
    """Demangled; empty where there is none."""
    reason: str = ""


@service(type(None), Question, Answer)
def symbols(files: Sequence[OpenFile], _: None) -> Callable[[Question], Answer]:
    """Return what reads the symbols of files."""

    def answer(question: Question) -> Answer:
        try:
            if question.places is None:
                return Answer(_read(files, question))
            elf = _elf(files, question.file)
            debug = _elf(files, question.debug[0]) if question.debug else None
            native = NativeSymbols(elf, debug)
            return Answer(names=[demangle(native.name(place))[:_MAX_NAME] for place in question.places])
        except (ElfError, OSError, struct.error) as e:
            return Answer(reason=str(e))

    return answer


def _read(files: Sequence[OpenFile], question: Question) -> FileSymbols:
    elf = _elf(files, question.file)
    ids, link = build_id(elf), read_link(elf)
    debug = next((i for i, n in enumerate(question.debug) if _belongs(files, n, ids.gnu or "", link)), -1)
    native = NativeSymbols(elf, _elf(files, question.debug[debug]) if debug >= 0 else None)
    code = next((s for s in elf.segments if s.type == PT_LOAD and s.flags & PF_X), None)
    segment = (0, 0, 0) if code is None else (code.vaddr, code.vaddr + code.mem_size, code.offset)
    return FileSymbols(ids.gnu or "", ids.htlhash, segment, native.index(), native.has_own_table(), link, debug)


def _elf(files: Sequence[OpenFile], number: int) -> ElfFile:
    return ElfFile.of(files[number], files[number].path)


def _belongs(files: Sequence[OpenFile], number: int, wanted: str, link: DebugLink) -> bool:
    try:
        return files[number].descriptor >= 0 and belongs(_elf(files, number), wanted, link)
    except (ElfError, OSError, struct.error):
        return False
