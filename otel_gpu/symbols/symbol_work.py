"""What do files say of their functions' names? Asked of children without rights: each file's functions first, then names."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import msgspec

from ..elf import PF_X, PT_LOAD, ElfFile
from ..errors import ElfError
from ..process.confinement import Limits
from ..process.work import OpenFile, service
from .build_id import build_id
from .debuglink import DebugLink, belongs, read_link
from .demangle import demangle
from .function_index import FunctionIndex, NamePlace
from .native import NativeSymbols

SYMBOLS = Limits(answer_s=10.0, cpu_s=60, memory_bytes=2 << 30, answer_bytes=128 << 20)
_MAX_NAME = 4096


class ReadFile(msgspec.Struct, frozen=True, tag=True):
    """Read the functions of the file of a number."""

    file: int
    debug: list[int] = []
    """Files that may hold the symbols that were split off, the best first."""


class FileSymbols(msgspec.Struct, frozen=True, tag=True):
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
    """The number of the file that holds its symbols."""


class ReadNames(msgspec.Struct, frozen=True, tag=True):
    """Read names of functions of a file, of which `debug` holds the symbols if it is not -1."""

    file: int
    debug: int
    places: list[NamePlace]


class Names(msgspec.Struct, frozen=True, tag=True):
    """Names in the order in which they were asked for, demangled; empty where there is none."""

    names: list[str]


class Unreadable(msgspec.Struct, frozen=True, tag=True):
    """A file cannot be read."""

    reason: str


Question = ReadFile | ReadNames
Answer = FileSymbols | Names | Unreadable


@service(type(None), Question, Answer)
def symbols(files: Sequence[OpenFile], _: None) -> Callable[[Question], Answer]:
    """Return what reads the symbols of files."""
    read: dict[tuple[int, int], NativeSymbols] = {}

    def of(file: int, debug: int) -> NativeSymbols:
        if (file, debug) not in read:
            elf, other = (ElfFile.of(files[n], files[n].path) if n >= 0 else None for n in (file, debug))
            assert elf is not None
            read[file, debug] = NativeSymbols(elf, other)
        return read[file, debug]

    def answer(question: Question) -> Answer:
        try:
            if isinstance(question, ReadNames):
                native = of(question.file, question.debug)
                return Names([demangle(native.name(place))[:_MAX_NAME] for place in question.places])
            elf = ElfFile.of(files[question.file], files[question.file].path)
            ids, link = build_id(elf), read_link(elf)
            debug = next((n for n in question.debug if _belongs(files[n], ids.gnu or "", link)), -1)
            native = of(question.file, debug)
            code = next((s for s in elf.segments if s.type == PT_LOAD and s.flags & PF_X), None)
            segment = (0, 0, 0) if code is None else (code.vaddr, code.vaddr + code.mem_size, code.offset)
            index = native.index()
            return FileSymbols(ids.gnu or "", ids.htlhash, segment, index, native.has_own_table(), link, debug)
        except (ElfError, OSError, struct.error) as e:
            return Unreadable(str(e))

    return answer


def _belongs(file: OpenFile, wanted: str, link: DebugLink) -> bool:
    try:
        return file.descriptor >= 0 and belongs(ElfFile.of(file, file.path), wanted, link)
    except (ElfError, OSError, struct.error):
        return False
