"""What does the memory of one process say? Asked of a child that holds it, and nothing else.

The child lives as long as it is asked now and then. A process whose memory keeps the child waiting is not asked again for
a while: its kernels have no names, and nobody else's wait.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from ....errors import ProcessGoneError
from ....sandbox.files import MappedFile
from ....sandbox.mappings import mapped_file
from ....sandbox.memory import MemoryFault, MemoryFiles
from ....sandbox.parsers import Job, Parsers, WorkError
from .driver_records import Path
from .memory_work import (
    MEMORY,
    Answer,
    DriverNamesAnswer,
    DriverNamesRequest,
    Failure,
    FoundPlaces,
    Mappings,
    MappingsRequest,
    PathTargets,
    PathTargetsRequest,
    PlacesRequest,
    Question,
    Texts,
    TextsRequest,
    Words,
    WordsRequest,
    program_memory,
)
from .resident_pages import Places

_log = logging.getLogger(__name__)
_IDLE_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 600.0
_SOON_S = 1.0
_MAX_ASKED = 8_192
"""Values that are looked for at a time."""

_T = TypeVar("_T", Mappings, Words, FoundPlaces, Texts, DriverNamesAnswer, PathTargets)


class ProgramMemory:
    """The memory of one process. Owned by one thread.

    Every question raises ProcessGoneError where the process has ended, and MemoryFault where there is no answer.
    """

    def __init__(self, parsers: Parsers, pid: int) -> None:
        self._parsers = parsers
        self._pid = pid
        self._job: Job[Answer] | None = None
        self._mapped: list[MappedFile] = []
        self._asked_at = 0.0
        self._not_before = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self.failures = 0
        """How often there was no answer."""

    def mapped(self) -> list[MappedFile]:
        """Return the files that are mapped executable, sorted by address."""
        rows = self._ask(MappingsRequest(), Mappings).rows
        if rows is not None:
            files = (mapped_file(self._pid, row) for row in rows)
            self._mapped = [file for file in files if file.inode]
        return self._mapped

    def words(self, addresses: Any) -> Any:
        """Return the 64-bit numbers at sorted addresses, 0 where nothing can be read."""
        import numpy as np

        if not len(addresses):
            return np.zeros(0, np.uint64)
        values = np.frombuffer(self._ask(WordsRequest(addresses.astype(np.int64).tobytes()), Words).values, np.uint64)
        if len(values) != len(addresses):
            raise MemoryFault(f"{len(values)} words are no answer where {len(addresses)} were asked for")
        return values

    def places(
        self, values: Collection[int], extent: tuple[int, int] | None = None, avoided: Collection[int] = ()
    ) -> Places:
        """Return where numbers stand in an extent's variables, or in allocated memory but for mappings to be avoided."""
        wanted = PlacesRequest(list(values)[:_MAX_ASKED], extent, list(avoided)[:_MAX_ASKED])
        return self._ask(wanted, FoundPlaces).places if values else {}

    def texts(self, addresses: Sequence[int], end: int, longest: int) -> dict[int, bytes]:
        """Return the texts that begin at addresses and end before `end`."""
        found = self._ask(TextsRequest(list(addresses), end, longest), Texts).texts if addresses else []
        return {address: text for address, text in zip(addresses, found) if text}

    def driver(
        self,
        handles: Collection[int],
        told: Mapping[int, str],
        paths: frozenset[Path],
        own: frozenset[Path] = frozenset(),
        in_files: frozenset[str] | None = None,
    ) -> DriverNamesAnswer:
        """Return what the driver's records say of handles (see DriverNamesRequest)."""
        return self._ask(DriverNamesRequest(list(handles), dict(told), paths, own, in_files), DriverNamesAnswer)

    def led(self, handles: Collection[int], paths: frozenset[Path]) -> dict[int, str]:
        """Return the names that paths lead to now."""
        return self._ask(PathTargetsRequest(list(handles), paths), PathTargets).names if paths else {}

    @property
    def is_open(self) -> bool:
        """Whether there is a child."""
        return self._job is not None

    def close_idle(self) -> None:
        """End the child if it has not been asked for a while."""
        if time.monotonic() - self._asked_at > _IDLE_S:
            self.close()

    def close(self) -> None:
        """End the child; idempotent."""
        job, self._job = self._job, None
        self._mapped = []
        if job is not None:
            job.close()

    def _ask(
        self,
        question: MappingsRequest
        | WordsRequest
        | PlacesRequest
        | TextsRequest
        | DriverNamesRequest
        | PathTargetsRequest,
        kind: type[_T],
    ) -> _T:
        self._asked_at = time.monotonic()
        if self._asked_at < self._not_before:
            raise MemoryFault(f"process {self._pid} kept whoever read its memory waiting, and is not asked for a while")
        for is_new in (self._job is None, True):
            try:
                if self._job is None:
                    self._job = self._parsers.begin(program_memory, MemoryFiles.of(self._pid), None, limits=MEMORY)
                said = self._job.ask(Question(question)).said
            except WorkError as e:
                _log.debug("the memory of process %d: %s", self._pid, e)
                self.close()
                if is_new or time.monotonic() - self._asked_at > _SOON_S:
                    break  # another would wait as long
            else:
                return self._answered(said, kind)
        self.failures += 1
        self._not_before = time.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        raise MemoryFault(f"the memory of process {self._pid} cannot be read")

    def _answered(
        self, said: Mappings | Words | FoundPlaces | Texts | DriverNamesAnswer | PathTargets | Failure, kind: type[_T]
    ) -> _T:
        if isinstance(said, kind):
            self._pause_s = _FIRST_PAUSE_S
            return said
        if isinstance(said, Failure) and said.is_gone:
            raise ProcessGoneError(f"process {self._pid} is gone")
        self.failures += 1
        raise MemoryFault(said.reason if isinstance(said, Failure) else "a child answered something else")
