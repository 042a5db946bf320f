"""What are the functions called in which processes were seen? Learnt file by file, beside whoever asks.

A frame without a name yet is asked for again once `on_names` was told. Files belong to the processes that have them mapped,
and go with the last of these.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

import msgspec

from ...runtime.fair_pool import FairPool
from ...runtime.supervision import Worker
from ...sandbox.files import File, MappedFile, RootedFile
from ...sandbox.parsers import Job, Parsers, WorkError
from ...sandbox.work import GONE
from ...signals.profiles import FileMapping, Frame, FrameKind
from ...signals.structs import Frozen, Record
from ..unwind.address_space import FileKey, Region
from ..unwind.loader import WalkedProcess
from .debuglink import candidates
from .function_index import NamePlace
from .symbol_work import SYMBOLS, Answer, FileSymbols, Question, symbols

_log = logging.getLogger(__name__)

_MAX_FILES = 4_096
_MAX_FRAMES = 20_000
"""Of one file."""
_MAX_INDEX_BYTES = 32 << 20
"""Of all files; what was used longest ago is read again when it is needed."""
_RETRY_S = 30.0
_TOGETHER = 24
"""Files that one child has open, with those that may hold their symbols."""
_MAX_BAD = 8
"""Files of one batch that may end, or hold up, the child that reads them; what is left then has no names."""

_K = TypeVar("_K")
_V = TypeVar("_V")
_Address = tuple[int, bool]
"""A link-time address, and whether it is one to return to: such a one is looked up by the call before it."""


class NamedFile(Record, eq=False):
    """One file, and what is known of its functions' names."""

    key: FileKey
    mapping: FileMapping
    users: dict[int, Region] = msgspec.field(default_factory=dict)
    """Where processes have it mapped."""
    symbols: FileSymbols | None = None
    debug: RootedFile | None = None
    """The file that holds its symbols, where these were split off."""
    names: dict[NamePlace, str] = msgspec.field(default_factory=dict)
    frames: dict[_Address, Frame] = msgspec.field(default_factory=dict)
    wanted: set[_Address] = msgspec.field(default_factory=set)
    asked: set[_Address] = msgspec.field(default_factory=set)
    """What is being looked up."""
    is_searched: bool = False
    """Whether the file was looked for that may hold its symbols."""
    used_at: float = 0.0
    retry_at: float = 0.0
    """Before this it is not read again, after it could not be read."""

    def frame(self, address: int, *, is_return: bool) -> Frame | None:
        """Return the frame at a link-time address; None as long as its name is not known."""
        return self.frames.get((address, is_return))

    def unnamed(self, address: int, *, is_return: bool) -> Frame:
        """Return the frame as it is shown without a name."""
        return Frame(FrameKind.NATIVE, mapping=self.mapping, address=address - is_return)


class _Ask(Frozen):
    """One question about one file."""

    file: NamedFile
    ways: list[File]
    """By which it can be opened, the best first."""
    debug: Sequence[RootedFile]
    """Files that may hold its symbols."""
    places: list[NamePlace] | None
    """Where the wanted names stand; None: its functions are wanted."""
    take: Callable[[Answer], None]

    @property
    def files(self) -> list[File]:
        """All that the child is to open."""
        return [*self.ways, *self.debug]


class FileNames:
    """The files of all processes. Safe to use from several threads."""

    def __init__(self, parsers: Parsers, on_names: Callable[[], None] = lambda: None) -> None:
        """`on_names` is called by threads of its own when names have become known."""
        self._parsers = parsers
        self._on_names = on_names
        self._lock = threading.RLock()
        self._files: dict[FileKey, NamedFile] = {}
        self._roots: dict[int, int | None] = {}
        """The root directories of processes: how their files are found once they have ended."""
        self._pool = FairPool("symbols", of_one=2)

    @property
    def workers(self) -> list[Worker]:
        """The threads that read files."""
        return self._pool.workers

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop reading; idempotent."""
        self._pool.close(timeout_s)
        for pid in list(self._roots):
            self.release(pid)

    def of(self, process: WalkedProcess, region: Region) -> NamedFile | None:
        """Return the file behind a region of a process; None for memory without a file."""
        key = region.key
        if key is None:
            return None
        with self._lock:
            file = self._files.get(key)
            if file is None:
                if len(self._files) >= _MAX_FILES:
                    del self._files[min(self._files.values(), key=lambda f: f.used_at).key]
                file = self._files[key] = NamedFile(key, FileMapping(region.path))
            if process.pid not in file.users:
                file.retry_at = 0.0  # it may be readable by way of this one
            file.users[process.pid] = region
            file.used_at = time.monotonic()
            if process.pid not in self._roots:
                self._roots[process.pid] = None if process.root is None else os.dup(process.root)
            return file

    def want(self, file: NamedFile, address: int, *, is_return: bool) -> bool:
        """Have a name looked up, if it is not known or being looked up; nothing is done before `look_up`."""
        wanted = address, is_return
        with self._lock:
            if self._files.get(file.key) is not file:
                file.frames[wanted] = file.unnamed(address, is_return=is_return)
            elif wanted not in file.wanted and wanted not in file.asked and wanted not in file.frames:
                file.wanted.add(wanted)
                return True
            return False

    def look_up(self, pid: int) -> None:
        """Begin to look up what is wanted of a process's files."""
        self._pool.submit(pid, partial(self._look_up, pid))

    def release(self, pid: int) -> None:
        """Forget a process, and the files that no other has mapped."""
        with self._lock:
            root = self._roots.pop(pid, None)
            if root is not None:
                os.close(root)
            for key, file in list(self._files.items()):
                if file.users.pop(pid, None) is not None and not file.users:
                    del self._files[key]

    def _look_up(self, pid: int) -> None:
        with self._lock:
            wanted = {f: f.wanted for f in self._files.values() if f.wanted and pid in f.users}
            now = time.monotonic()
            for file in wanted:
                file.asked |= file.wanted
                file.wanted = set()
            root = self._roots.get(pid)
            root = None if root is None else os.dup(root)
        try:
            reading = _Reading(self._parsers, pid, root, self._lock)
            left = ((file, addresses) for file, addresses in wanted.items() if file.retry_at <= now)
            while batch := dict(islice(left, _TOGETHER)):
                reading.read(batch)
        finally:
            if root is not None:
                os.close(root)
            with self._lock:
                for file, addresses in wanted.items():
                    for address, is_return in addresses - file.frames.keys():
                        file.frames[address, is_return] = file.unnamed(address, is_return=is_return)
                    file.asked -= addresses
                    _drop_oldest(file.frames)
                    _drop_oldest(file.names)
                self._drop_indexes()
        if wanted:
            self._on_names()

    def _drop_indexes(self) -> None:
        """Keep the functions of the files used last."""
        held = sorted((f for f in self._files.values() if f.symbols is not None), key=lambda f: -f.used_at)
        total = 0
        for file in held:
            assert file.symbols is not None
            total += file.symbols.index.size_bytes
            if total > _MAX_INDEX_BYTES:
                file.symbols = None


class _Reading:
    """What is read of several files by way of one process."""

    def __init__(self, parsers: Parsers, pid: int, root: int | None, lock: threading.RLock) -> None:
        self._parsers = parsers
        self._pid = pid
        self._root = root
        self._lock = lock
        self._has_ended = not os.path.exists(f"/proc/{pid}")

    def read(self, wanted: Mapping[NamedFile, Collection[_Address]]) -> None:
        """Learn the names at addresses of files, as far as that goes."""
        self._ask_for(lambda: [self._functions(file, []) for file in wanted if file.symbols is None])
        self._ask_all([self._functions(file, found) for file in wanted if (found := self._candidates(file))])
        self._ask_for(lambda: [self._names(file, addresses) for file, addresses in wanted.items()])

    def _ways(self, file: NamedFile) -> list[File]:
        """Return how a file can be opened: by its mapping, or by its path where the process has ended."""
        region = file.users.get(self._pid)
        if region is None:
            return []
        mapped = region.mapped(self._pid)
        if not self._has_ended:
            return [mapped]
        return [mapped.below(root) for root in ([-1] if self._root is None else [0, -1])]

    def _functions(self, file: NamedFile, debug: Sequence[RootedFile]) -> _Ask:
        """Ask for a file's functions; one of `debug` may hold its symbols."""

        def take(answer: Answer) -> None:
            found = answer.symbols
            if found is None:
                _failed(file, answer.reason)
                return
            file.mapping = FileMapping(file.mapping.path, found.build_id, found.htlhash, *found.segment)
            file.symbols = found
            file.debug = debug[found.debug] if 0 <= found.debug < len(debug) else None
            file.names.clear()

        return _Ask(file, self._ways(file), debug, None, take)

    def _candidates(self, file: NamedFile) -> list[RootedFile]:
        """Return the files that may hold a file's symbols."""
        found, region = file.symbols, file.users.get(self._pid)
        if found is None or region is None or found.has_own_table or file.is_searched:
            return []
        file.is_searched = True
        return [
            RootedFile(0 if c.in_process else -1, c.path)
            for c in candidates(region.raw_path, found.build_id, found.link)
            if (self._root is not None if c.in_process else os.path.lexists(c.path))
        ]

    def _names(self, file: NamedFile, addresses: Collection[_Address]) -> _Ask | None:
        """Ask for the names at addresses; None where they are known, or never will be."""
        if file.symbols is None:
            return None
        ordered = list(addresses)
        found = file.symbols.index.find(address - is_return for address, is_return in ordered)
        missing = list({f.name for f in found if f is not None and f.name not in file.names})

        def take(answer: Answer) -> None:
            file.names.update(zip(missing, answer.names))
            with self._lock:
                for (address, is_return), function in zip(ordered, found, strict=True):
                    name = "" if function is None else file.names.get(function.name, "")
                    frame = Frame(FrameKind.NATIVE, name, mapping=file.mapping, address=address - is_return)
                    file.frames[address, is_return] = frame

        if not missing:
            take(Answer())
            return None
        return _Ask(file, self._ways(file), [] if file.debug is None else [file.debug], missing, take)

    def _ask_for(self, missing: Callable[[], Iterable[_Ask | None]]) -> None:
        """Ask what is missing, and once more if the process has ended meanwhile."""
        had_ended = self._has_ended
        self._ask_all(missing())
        if self._has_ended and not had_ended:
            self._ask_all(missing())

    def _ask_all(self, asks: Iterable[_Ask | None]) -> None:
        """Ask one child all questions, and another what is left when a file ends it or holds it up."""
        left = [ask for ask in asks if ask is not None and ask.ways]
        for _ in range(_MAX_BAD):
            if not left:
                return
            answered, bad, reason = self._ask_one_child(left)
            if bad is not None:
                _failed(bad.file, reason)
            left = [ask for ask in left[answered:] if ask is not bad]

    def _ask_one_child(self, asks: Sequence[_Ask]) -> tuple[int, _Ask | None, str]:
        """Return how many of the first questions are dealt with, and which one ended the child or held it up, and how."""
        given = [] if self._root is None else [self._root]
        files = [file for ask in asks for file in ask.files]
        answered = 0
        with self._parsers.begin(symbols, files, None, given=given, limits=SYMBOLS) as job:
            try:
                job.open()
                first = 0
                mapped = (o for f, o in zip(files, job.opened) if isinstance(f, MappedFile))
                self._has_ended |= any(opened.error in GONE for opened in mapped)
                for ask in asks:
                    _ask(job, ask, first, len(given))
                    first += len(ask.files)
                    answered += 1
            except WorkError as e:
                owners = [ask for ask in asks for _ in ask.files]
                return answered, asks[answered] if job.is_confined else owners[len(job.opened)], str(e)
        return answered, None, ""


def _ask(job: Job[Answer], ask: _Ask, first: int, given: int) -> None:
    """Ask one question; `first` is the number of the question's first file, behind those that were given."""
    open_ones = [n for n in range(first, first + len(ask.ways)) if not job.opened[n].reason]
    if not open_ones:
        _failed(ask.file, job.opened[first].reason)
        return
    debug = [given + first + len(ask.ways) + n for n in range(len(ask.debug))]
    ask.take(job.ask(Question(given + open_ones[0], debug, ask.places)))


def _failed(file: NamedFile, reason: str) -> None:
    _log.debug("%s has no names: %s", file.mapping.path, reason)
    file.retry_at = time.monotonic() + _RETRY_S


def _drop_oldest(known: dict[_K, _V]) -> None:
    """Keep what was learnt last: what is waited for is among that."""
    if len(known) > _MAX_FRAMES:
        for key in list(islice(known, len(known) // 2)):
            del known[key]
