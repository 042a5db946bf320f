"""What does a process's memory tell of its kernels? Asked of a child without rights that holds it, and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from ....errors import OtelGpuError, ProcessGoneError
from ....sandbox.confinement import Limits
from ....sandbox.mappings import Row, parse_executable
from ....sandbox.memory import MemoryFault, MemoryFiles, ProcessMemory
from ....sandbox.work import OpenFile, service
from .driver_records import Path, all_texts, judged, led_to, might_be_supported, supported_by_code
from .private_pages import PrivatePages
from .resident_pages import AROUND, Places, allocated, find_places, variables
from .words import read_words

MEMORY = Limits(answer_s=8.0, cpu_s=600, memory_bytes=1 << 30, answer_bytes=64 << 20)
"""A search of all that a program has in memory ends by itself after five seconds."""
_MAX_TEXT_BYTES = 16 << 20
_PLACE_WORDS = 2 * AROUND + 1


class MappingsRequest(msgspec.Struct, frozen=True, tag=True):
    """What is mapped executable? Answered by Mappings."""


class Mappings(msgspec.Struct, frozen=True, tag=True):
    """None where it is what it was at the last answer."""

    rows: list[Row] | None


class WordsRequest(msgspec.Struct, frozen=True, tag=True):
    """Which 64-bit numbers stand at these addresses, which are sorted and 64-bit numbers too? Answered by Words."""

    addresses: bytes


class Words(msgspec.Struct, frozen=True, tag=True):
    """In the order of the addresses; 0 where nothing can be read."""

    values: bytes


class PlacesRequest(msgspec.Struct, frozen=True, tag=True):
    """Where in allocated memory, or in the variables of an extent, do these numbers stand? Answered by FoundPlaces."""

    values: list[int]
    extent: tuple[int, int] | None
    avoided: list[int]
    """Addresses in mappings that are not to be searched, of allocated memory."""


class FoundPlaces(msgspec.Struct, frozen=True, tag=True):
    """64-bit numbers: all around each place, with the one that was found in the middle."""

    around: bytes

    @property
    def places(self) -> Places:
        """Return them by the number that was found."""
        found: Places = {}
        whole = len(self.around) // (8 * _PLACE_WORDS) * (8 * _PLACE_WORDS)
        for place in struct.iter_unpack(f"<{_PLACE_WORDS}Q", self.around[:whole]):
            found.setdefault(place[AROUND], []).append(place)
        return found


class TextsRequest(msgspec.Struct, frozen=True, tag=True):
    """Which texts, ended by a zero byte, begin at these addresses? Answered by Texts."""

    addresses: list[int]
    end: int
    """Where the last of them may end."""
    longest: int


class Texts(msgspec.Struct, frozen=True, tag=True):
    """In the order of the addresses; empty where there is none."""

    texts: list[bytes]


class DriverNamesRequest(msgspec.Struct, frozen=True, tag=True):
    """What do the driver's records say of these handles? Answered by DriverNamesAnswer."""

    handles: list[int]
    told: dict[int, str]
    """Names that are known otherwise."""
    paths: frozenset[Path]
    """Those that are believed of the driver."""
    own: frozenset[Path]
    """Those that were found to hold for this program alone."""
    in_files: frozenset[str] | None = None
    """The kernels in the files of the program's compilers; None: they are still to be looked for, if they are needed."""


class DriverNamesAnswer(msgspec.Struct, frozen=True, tag=True):
    """What the driver's records say, after the names that are known have had their say."""

    paths: frozenset[Path]
    """Those that are believed of the driver from now on."""
    own: frozenset[Path] = frozenset()
    names: dict[int, str] = {}
    needs_files: bool = False
    """Whether the kernels in the files of the program's compilers may tell more."""


class PathTargetsRequest(msgspec.Struct, frozen=True, tag=True):
    """Where do paths lead from these handles now? Answered by PathTargets."""

    handles: list[int]
    paths: frozenset[Path]


class PathTargets(msgspec.Struct, frozen=True, tag=True):
    """The names that they lead to."""

    names: dict[int, str]


class Failure(msgspec.Struct, frozen=True, tag=True):
    """Why there is no answer."""

    reason: str
    is_gone: bool


class Question(msgspec.Struct, frozen=True):
    """What is asked."""

    of: MappingsRequest | WordsRequest | PlacesRequest | TextsRequest | DriverNamesRequest | PathTargetsRequest


class Answer(msgspec.Struct, frozen=True):
    """What is answered."""

    said: Mappings | Words | FoundPlaces | Texts | DriverNamesAnswer | PathTargets | Failure


@service(type(None), Question, Answer)
def program_memory(files: Sequence[OpenFile], _: None) -> Callable[[Question], Answer]:
    """Return what answers questions about the memory of a process, whose files these are (`MemoryFiles.of`)."""
    asked = _Asked(MemoryFiles.opened(files))

    def answer(question: Question) -> Answer:
        try:
            return Answer(asked.answer(question.of))
        except (OtelGpuError, OSError, struct.error) as e:
            return Answer(Failure(str(e), isinstance(e, ProcessGoneError)))

    return answer


class _Asked:
    def __init__(self, files: MemoryFiles) -> None:
        self._files = files
        self._maps = b""

    def answer(
        self,
        ask: MappingsRequest | WordsRequest | PlacesRequest | TextsRequest | DriverNamesRequest | PathTargetsRequest,
    ) -> Mappings | Words | FoundPlaces | Texts | DriverNamesAnswer | PathTargets:
        match ask:
            case MappingsRequest():
                return self._mapped()
            case WordsRequest():
                return Words(read_words(self._files.memory, np.frombuffer(ask.addresses, np.int64)).tobytes())
            case PlacesRequest():
                return self._places(ask)
            case TextsRequest():
                return Texts(list(_texts(self._files.memory, ask)))
            case DriverNamesRequest():
                return self._said(ask)
            case PathTargetsRequest():
                return PathTargets(_led(PrivatePages(self._files), ask.handles, ask.paths))

    def _mapped(self) -> Mappings:
        maps = self._files.read_maps()
        if maps == self._maps:
            return Mappings(None)
        self._maps = maps
        return Mappings(list(parse_executable(maps)))

    def _places(self, ask: PlacesRequest) -> FoundPlaces:
        mappings = self._files.mappings()
        ranges = allocated(mappings, ask.avoided) if ask.extent is None else variables(mappings, ask.extent)
        found = find_places(self._files, ask.values, ranges)
        return FoundPlaces(
            b"".join(struct.pack(f"<{_PLACE_WORDS}Q", *place) for its in found.values() for place in its)
        )

    def _said(self, ask: DriverNamesRequest) -> DriverNamesAnswer:
        memory = PrivatePages(self._files)
        paths = judged(memory, ask.paths, ask.told)
        if believed := paths or ask.own:
            return DriverNamesAnswer(paths, ask.own, _led(memory, ask.handles, believed))
        found = all_texts(memory, ask.handles, ask.told)
        if not might_be_supported(found):
            return DriverNamesAnswer(paths)
        if ask.in_files is None:
            return DriverNamesAnswer(paths, needs_files=True)
        from .device_names import names_in_memory  # here, because the agent itself reads none

        own = supported_by_code(found, ask.told, ask.in_files | names_in_memory(self._files))
        return DriverNamesAnswer(paths, own, _led(memory, ask.handles, own))


def _led(memory: PrivatePages, handles: Sequence[int], paths: frozenset[Path]) -> dict[int, str]:
    led = {handle: led_to(memory, handle, paths) for handle in handles} if paths else {}
    return {handle: name for handle, name in led.items() if name is not None}


def _texts(memory: ProcessMemory, ask: TextsRequest) -> Iterator[bytes]:
    left = _MAX_TEXT_BYTES
    for address in ask.addresses:
        try:
            data = memory.read(address, max(min(ask.longest, ask.end - address), 0)) if left > 0 else b""
        except MemoryFault:
            data = b""
        text, end, _ = data.partition(b"\0")
        left -= len(text)
        yield text if end else b""
