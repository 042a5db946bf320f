"""Which files' unwinding tables does the kernel hold, and which comes next?

Files that stand on stacks come first, then what most stacks need, then the rest by size; no process has to wait for all
files of another. Of a large file whose table is still being worked out, the functions that stand on stacks are: that takes
milliseconds. Tables are shared by all processes that map the file.
"""

from __future__ import annotations

import heapq
import logging
import math
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from functools import partial

import msgspec
import numpy as np

from ...bpf.abi.unwinding import UNWIND_ROW, RowKind
from ...bpf.maps import BpfMap
from ...runtime.fair_pool import FairPool
from ...runtime.supervision import Worker
from ...sandbox.batches import each
from ...sandbox.files import MappedFile
from ...sandbox.parsers import Job, Parsers, WorkError
from ...signals.structs import Record
from .address_space import FileKey
from .cache import TableCache
from .row_space import RowSpace
from .shape import Shape
from .table_work import PARTS, TABLES, FileFrames, Part, frames_of, parts

_log = logging.getLogger(__name__)

_SMALL_BYTES = 1 << 20
"""Of unwinding information; smaller files are read together."""
_TOGETHER = 32
_KEPT_FOR_PARTS = 16
"""One in so many rows is never taken by a whole table: parts that stacks need find room."""
_PARTS_IDLE_S = 10.0
_MAX_MISSING = 4_096
"""Addresses of one file that are asked for at once."""
_NEEDED, _EARLY, _LATE = 0, 1, 2
NO_ROOM = "the kernel's table is full; a larger `table_rows` holds more"


class FileTable(Record, eq=False):
    """One file, as the kernel's programs see it."""

    key: FileKey
    number: int
    is_early: bool
    shape: Shape | None = None
    places: dict[int, MappedFile] = msgspec.field(default_factory=dict)
    """Where each process that maps it has it mapped."""
    asker: int = 0
    """The process for which it is read."""
    first_row: int = 0
    rows: int = 0
    is_whole: bool = False
    """Its table is in the kernel, or it has none."""
    keeps_frame_pointers: bool = False
    has_no_table: bool = False
    frames: FileFrames | None = None
    """Without its rows."""
    why_not: str = ""
    parts: dict[int, Part] = msgspec.field(default_factory=dict)
    missing: set[int] = msgspec.field(default_factory=set)
    """Link-time addresses that stood on stacks and are in no row yet."""
    has_parts: bool = True
    compiler: Job[list[Part]] | None = None
    asked_at: float = 0.0

    def missing_still(self) -> list[int]:
        """Return which of the missing addresses are in no part that is there by now."""
        base = 0 if self.shape is None else self.shape.base
        parts = sorted((base + part.begin, base + part.end) for part in self.parts.values())
        begins = [begin for begin, _ in parts]
        return [a for a in sorted(self.missing) if not (at := bisect_right(begins, a)) or a >= parts[at - 1][1]]

    @property
    def frames_bytes(self) -> int:
        """How large its unwinding information is."""
        return 0 if self.shape is None else self.shape.frames_bytes


class FileTables:
    """The tables of all files. `lock` guards what belongs to them and to the processes that use them."""

    def __init__(
        self,
        parsers: Parsers,
        rows: BpfMap,
        cache: TableCache,
        on_change: Callable[[Collection[FileTable]], None],
    ) -> None:
        """`on_change` is told, by any thread and without the lock, of files of which more is known than before."""
        self.lock = threading.RLock()
        self._parsers = parsers
        self._cache = cache
        self._on_change = on_change
        self._space = RowSpace(rows, UNWIND_ROW)
        self._reserve = rows.max_entries // _KEPT_FOR_PARTS
        self._files: dict[FileKey, FileTable] = {}
        self._numbers = 0
        self._queues: dict[int, list[tuple[int, int, int, FileTable]]] = {}
        """By process."""
        self._queued: dict[FileTable, int] = {}
        """Files that wait, and how urgently."""
        self._being_read: set[FileTable] = set()
        self._tables = FairPool("unwinding tables", of_one=2)
        self._parts = FairPool("unwinding parts")

    @property
    def workers(self) -> list[Worker]:
        """The threads that read files."""
        return [*self._tables.workers, *self._parts.workers]

    def close(self, timeout_s: float) -> None:
        """Stop reading; idempotent."""
        deadline = time.monotonic() + timeout_s
        for pool in (self._tables, self._parts):
            pool.close(max(deadline - time.monotonic(), 0.1))
        with self.lock:
            for file in self._files.values():
                _close_compiler(file)

    def get(self, key: FileKey) -> FileTable | None:
        """Return what is known of a file."""
        return self._files.get(key)

    def use(self, key: FileKey, place: MappedFile, *, is_early: bool) -> FileTable:
        """Note that a process has a file mapped; `is_early` for what most stacks need."""
        with self.lock:
            file = self._files.get(key)
            if file is None:
                self._numbers += 1
                file = self._files[key] = FileTable(key, self._numbers, is_early)
            file.is_early |= is_early
            file.places[place.pid] = place
            return file

    def release(self, keys: Collection[FileKey], pid: int) -> None:
        """Note that a process has files mapped no longer; what nobody uses goes."""
        with self.lock:
            for key in keys:
                file = self._files[key]
                file.places.pop(pid, None)
                if not file.places:
                    self._space.retire(file.first_row, file.rows)
                    self._queued.pop(file, None)
                    _close_compiler(file)
                    del self._files[key]
                elif file.asker == pid and (urgency := self._queued.pop(file, None)) is not None:
                    self._enqueue(file, next(iter(file.places)), urgency)

    def want(self, files: Iterable[FileTable], pid: int) -> None:
        """Have the tables of files read for a process."""
        # None is read before all are known: a large one that few stacks need would take the turn of those that all need.
        with self.lock:
            for file in files:
                self._enqueue(file, pid, _EARLY if file.is_early else _LATE)

    def need(self, file: FileTable, pid: int, addresses: Collection[int]) -> bool:
        """Have what stacks of a process need at link-time addresses read before anything else; True: in parts."""
        comes_in_parts = False
        with self.lock:
            if file.is_whole and file.why_not != NO_ROOM:
                return False
            if file.has_parts and file.frames_bytes > _SMALL_BYTES // 4 and len(file.missing) < _MAX_MISSING:
                comes_in_parts = True
                if not file.missing:
                    self._parts.submit(file.key, partial(self._read_parts, file))
                file.missing.update(addresses)
        if not file.is_whole:
            self._enqueue(file, pid, _NEEDED)
        return comes_in_parts

    def is_read(self, file: FileTable) -> bool:
        """Tell whether a file's whole table has been read, and told of."""
        with self.lock:
            return file.is_whole and file not in self._being_read

    def waiting(self) -> int:
        """Return how many files' tables are yet to be read."""
        with self.lock:
            return len(self._queued) + len(self._being_read)

    def reading(self) -> str:
        """Return a file that is being read, for people; empty when there is none."""
        with self.lock:
            return max(
                ((f.frames_bytes, place.shown) for f in self._being_read for place in f.places.values()),
                default=(0, ""),
            )[1]

    def lacks_room(self) -> bool:
        """Tell whether some file's table has no room."""
        with self.lock:
            return any(f.why_not == NO_ROOM for f in self._files.values())

    def _enqueue(self, file: FileTable, pid: int, urgency: int) -> None:
        with self.lock:
            if file.is_whole or file in self._being_read or self._queued.get(file, math.inf) <= urgency:
                return
            self._queued[file] = urgency
            file.asker = pid
            heapq.heappush(self._queues.setdefault(pid, []), (urgency, file.frames_bytes, file.number, file))
        # One task for each file: those of files that are read together, or were asked for twice, find nothing left.
        self._tables.submit(pid, partial(self._read, pid), urgency)

    def _next(self, pid: int) -> list[FileTable]:
        """Take a process's files that are read next: one large one, or several small ones."""
        taken: list[FileTable] = []
        size = 0
        with self.lock:
            queue = self._queues.get(pid, [])
            while queue and len(taken) < _TOGETHER:
                urgency, _, _, file = queue[0]
                if file.asker == pid and self._queued.get(file) == urgency:
                    if taken and size + file.frames_bytes > _SMALL_BYTES:
                        break
                    taken.append(file)
                    size += file.frames_bytes
                    del self._queued[file]
                heapq.heappop(queue)
            if not queue:
                self._queues.pop(pid, None)
            self._being_read.update(taken)
        return taken

    def _read(self, pid: int) -> None:
        taken = self._next(pid)
        if not taken:
            return
        try:
            self._read_files(taken)
        finally:
            with self.lock:
                self._on_change(taken)
                self._being_read.difference_update(taken)

    def _read_files(self, files: list[FileTable]) -> None:
        with self.lock:
            there = [f for f in files if f.places]
            places = [next(iter(f.places.values())) for f in there]
        for outcome in each(self._parsers, frames_of, places, self._cache.names(), TABLES):
            file = there[outcome.number]
            if outcome.answer is None:
                self._give_up(file, outcome.reason)
                continue
            frames = outcome.answer.frames
            if frames is not None:
                self._cache.store(outcome.answer.name, frames)
            else:
                frames = self._cache.load(outcome.answer.name)
            if frames is None:  # it went from the cache meanwhile, or is damaged there
                again = list(each(self._parsers, frames_of, [places[outcome.number]], frozenset[str](), TABLES))
                frames = again[0].answer.frames if again[0].answer is not None else None
            if frames is None:
                self._give_up(file, "what was worked out of it is lost")
            else:
                self.take(file, frames)

    def _give_up(self, file: FileTable, reason: str) -> None:
        with self.lock:
            file.why_not, file.is_whole, file.has_no_table = reason, True, True

    def take(self, file: FileTable, frames: FileFrames) -> None:
        """Put a file's table in place of the parts that were read of it before."""
        table = frames.table
        with self.lock:
            file.is_whole = True
            file.frames = FileFrames(python=frames.python, why_no_python=frames.why_no_python)
            file.keeps_frame_pointers = frames.keeps_frame_pointers
            if table is None:
                file.has_no_table, file.why_not = True, frames.why_no_table
                return
            # From end_pc on nothing is known.
            rows = np.append(table.rows, np.array([(table.end_pc, 0, RowKind.END, 0)], UNWIND_ROW))
            if self._files.get(file.key) is not file:
                return  # nobody uses it any more
            first = self._space.write(rows) if self._space.free - len(rows) >= self._reserve else None
            if first is None:
                file.why_not = NO_ROOM
                return
            self._space.retire(file.first_row, file.rows)
            file.first_row, file.rows = first, len(rows)
            file.parts.clear()
            file.missing.clear()
            _close_compiler(file)

    def _read_parts(self, file: FileTable) -> None:
        with self.lock:
            addresses = file.missing_still()
            file.missing.clear()
        if not addresses:
            return
        try:
            self._read_parts_of(file, addresses)
        except WorkError as e:
            _log.debug("no parts of %s: %s", file.key, e)
            with self.lock:
                file.has_parts = False
                _close_compiler(file)

    def _read_parts_of(self, file: FileTable, addresses: list[int]) -> None:
        with self.lock:
            if self._files.get(file.key) is not file:
                return
            if file.compiler is None and file.places:
                place = next(iter(file.places.values()))
                file.compiler = self._parsers.begin(parts, [place], None, limits=PARTS)
            compiler, file.asked_at = file.compiler, time.monotonic()
        if compiler is None:
            return
        found = compiler.ask(addresses)
        with self.lock:
            if (file.is_whole and file.why_not != NO_ROOM) or self._files.get(file.key) is not file:
                return
            file.has_parts = bool(found)
            file.parts.update((part.begin, part) for part in found)
            rows = joined(list(file.parts.values()))
            first = self._space.write(rows)
            if first is None:
                return
            self._space.retire(file.first_row, file.rows)
            file.first_row, file.rows = first, len(rows)
        self._on_change([file])

    def close_idle(self) -> float:
        """End the children that compile parts and have not been asked lately; return in how many seconds to do so again."""
        now = time.monotonic()
        with self.lock:
            due = math.inf
            for file in self._files.values():
                if file.compiler is not None:
                    left = file.asked_at + _PARTS_IDLE_S - now
                    if left <= 0:
                        _close_compiler(file)
                    else:
                        due = min(due, left)
        return due


def joined(found: list[Part]) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Return the rows of parts of a file as one table: what lies between them has not been read."""
    unread = np.array([(0, 0, RowKind.UNREAD, 0)], UNWIND_ROW)
    rows, end = [unread], 0
    for part in sorted(found, key=lambda p: p.begin):
        if part.begin > end and end:
            gap = unread.copy()
            gap["pc"] = end
            rows.append(gap)
        mine = np.frombuffer(part.rows, UNWIND_ROW)
        if part.begin < end < part.end:
            # Two parts have functions in common: what holds at the first one's end may have begun before.
            later = int(np.searchsorted(mine["pc"], end, side="right"))
            mine = mine[max(later - 1, 0) :].copy()
            mine["pc"][:1] = end
        if part.end > end:
            rows.append(mine)
            end = part.end
    last = unread.copy()
    last["pc"] = end
    return np.concatenate([*rows, last])


def _close_compiler(file: FileTable) -> None:
    if file.compiler is not None:
        file.compiler.close()
        file.compiler = None
