"""Which process just mapped a library of interest, and which library is mapped by nobody any more?

Scans once, then follows the kernel's events. What takes time, opening files and placing probes, is done for each process
apart, so that one that keeps its observers waiting holds up no other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from ..errors import OtelGpuError
from ..runtime.fair_pool import FairPool
from ..runtime.shortage import is_shortage
from ..runtime.supervision import Worker
from ..sandbox.files import MappedFile
from ..sandbox.parsers import Parsers
from . import procfs
from .catalogue import LibraryCatalogue
from .events import Event, Executed, Exited, Forked, Lost, Mapped, ProcessEvents
from .followed import FollowedProcesses
from .libraries import Library
from .mapped_now import MappedNow
from .processes import Process, ProcessTable
from .program_id import ProgramId
from .users import LibraryUsers

_log = logging.getLogger(__name__)
_LOOKS = 8
_POLL_S = 2.0
_END_S = 5.0
_RETRY_S = 2.0
_SCAN_S = 30.0
"""How long the agent's start waits for what runs already to be looked at; what takes longer goes on beside."""
_UNANSWERED_S = 5.0
"""How long it waits besides for processes that could not be read together with one that does not answer."""

OnLibrary = Callable[[Process, Library, MappedFile, int | None], None]
"""(process, library, where the process has it mapped, and since when by the monotonic clock, if that is known)."""


class Watcher:
    """Follows the processes of this host in threads of its own and reports who maps what."""

    def __init__(
        self,
        table: ProcessTable,
        parsers: Parsers,
        on_library: OnLibrary,
        *,
        pids: Collection[int] = (),
        followed: FollowedProcesses | None = None,
        observes_at_once: bool = False,
        on_exit: Callable[[Process], None] = lambda _process: None,
        on_map: Callable[[int], None] = lambda _pid: None,
        on_unused: Callable[[Library], None] = lambda _library: None,
        retry: Callable[[], None] = lambda: None,
    ) -> None:
        """Subscribe; nothing is reported before `scan` or `start`. `pids` limits who is reported.

        So does `followed`, where it is given, of which processes are observed as soon as they are made, whatever they map,
        if the watcher `observes_at_once`.
        `on_map` is told of executable mappings that an observed process has made, `on_unused` of a library that no
        observed process has mapped any more; `retry` is called now and then, for what has failed for want of descriptors
        or memory. All but `on_exit` may be called from several threads at once.
        """
        self._table = table
        self._parsers = parsers
        self._on_library = on_library
        self._on_exit = on_exit
        self._on_map = on_map
        self._on_unused = on_unused
        self._retry = retry
        self._retried_at = time.monotonic()
        self._must_scan = False
        """Something about a process could not be looked at, or was not told."""
        self._pids: Collection[int] = set(pids)
        self._followed = followed
        self._observes_at_once = observes_at_once
        self._looks_no_more = threading.Event()
        self._catalogue = LibraryCatalogue(parsers, self._looks_no_more.is_set)
        self._users = LibraryUsers()
        self._aside: dict[int, list[tuple[MappedFile, Library]]] = {}
        """What processes have mapped that is of interest only once they have mapped something else."""
        # What many processes have mapped is looked at side by side: most of the time is spent waiting.
        self._looks = FairPool("discovery looks", at_once=_LOOKS, most=_LOOKS)
        self._mapped_now = MappedNow(parsers, lambda: partial(self._take, table.running()))
        self._events = ProcessEvents()
        self._worker = Worker("discovery", self._follow, interrupt=self._events.interrupt)

    @property
    def workers(self) -> list[Worker]:
        """The threads that follow and look at processes."""
        return [self._worker, *self._looks.workers, *self._mapped_now.workers]

    def scan(self) -> None:
        """Look at the processes as they are now, and return when that is done."""
        self._mapped_now.read(self._chosen())
        self._mapped_now.settle(_UNANSWERED_S)
        self._looks.settle(_SCAN_S)

    def keep(self, library: Library, path: str) -> None:
        """Do not report a library as unused as long as it is the file at a path of this host."""
        self._users.keep(library, path)

    def start(self) -> None:
        """Follow events from here on."""
        self._worker.start()

    def look_no_more(self) -> None:
        """Look at no other process or library, without a wait; events are still followed."""
        self._looks_no_more.set()
        self._mapped_now.close(0)
        self._looks.close(0)

    def stop(self) -> None:
        """Stop following; idempotent."""
        self.look_no_more()
        self._mapped_now.close(_END_S)
        self._looks.close(_END_S)
        if self._worker.stop(_END_S):
            self._events.close()

    def _take(self, running: Mapping[int, ProgramId], pid: int, files: Sequence[MappedFile]) -> None:
        """Have looked at what a process has mapped that was there before; `running` since before that was read."""
        # Who runs afterwards what ran before has mapped this.
        if (program := running.get(pid)) is not None and self._table.runs(program):
            self._table.mapped_before.note(program, files)
        self._looks.submit(pid, partial(self._look_at, pid, files, (), late=True))

    def _chosen(self) -> Iterable[int]:
        return self._pids or procfs.pids() if self._followed is None else self._followed

    def _wants(self, pid: int) -> bool:
        if self._followed is not None:
            return pid in self._followed
        return not self._pids or pid in self._pids

    def _follow(self) -> float:
        self._handle(self._events.wait(_POLL_S))
        if self._worker.is_stopping:
            return 0.0
        for library in self._users.take_unused():
            self._catalogue.forget(library)
            self._on_unused(library)
        if time.monotonic() - self._retried_at >= _RETRY_S:
            self._retried_at = time.monotonic()
            self._mapped_now.read_again()
            self._looks.submit(None, self._try_again)
        return 0.0

    def _try_again(self) -> None:
        self._retry()
        if self._must_scan:
            self._must_scan = False
            try:
                self._mapped_now.read(self._chosen())
            except BaseException:
                self._must_scan = True
                raise

    def _handle(self, events: Sequence[Event]) -> None:
        """Take in what happened: what takes time is left to the looks, the mappings of each process together."""
        mapped: dict[int, list[Mapped]] = {}
        for event in events:
            if self._worker.is_stopping:
                return
            match event:
                case Mapped() if self._wants(event.pid):
                    mapped.setdefault(event.pid, []).append(event)
                case Forked() if event.parent != event.pid and self._wants(event.pid):
                    if self._observes_at_once:
                        self._looks.submit(event.pid, partial(self._observe, event.pid))
                    self._look_at_mapped(event.parent, mapped)
                    # A parent that ends now has been known; one that is still looked at may become so.
                    owner = event.pid if self._table.known(event.parent) else event.parent
                    self._looks.submit(owner, partial(self._forked, event.pid, event.parent, owner == event.pid))
                case Executed():
                    self._look_at_mapped(event.pid, mapped)
                    self._aside.pop(event.pid, None)
                    self._table.executed(event.pid, event.comm)
                    if self._observes_at_once and self._wants(event.pid):
                        self._looks.submit(event.pid, partial(self._observe, event.pid))
                case Exited() if self._knows(event.pid) and not procfs.is_alive(event.pid):
                    self._aside.pop(event.pid, None)
                    if self._followed is not None:
                        self._followed.discard(event.pid)
                    if (process := self._table.exited(event.pid)) is not None:
                        self._on_exit(process)
                case Lost():
                    _log.warning("the kernel dropped %d process events: looking at every process again", event.count)
                    self._must_scan, self._retried_at = True, 0.0
                case _:
                    pass
        for pid in list(mapped):
            self._look_at_mapped(pid, mapped)

    def _knows(self, pid: int) -> bool:
        return pid in self._aside or self._table.known(pid) or (self._followed is not None and pid in self._followed)

    def _look_at_mapped(self, pid: int, mapped: dict[int, list[Mapped]]) -> None:
        if events := mapped.pop(pid, []):
            files = [MappedFile(pid, e.start, e.end, e.offset, e.device, e.inode, e.path) for e in events]
            generations = [e.generation for e in events]
            since = min(e.when_ns for e in events)
            self._looks.submit(pid, partial(self._look_at, pid, files, generations, late=False, since_ns=since))

    def _observe(self, pid: int) -> None:
        """Have a process looked at whatever it maps."""
        if procfs.is_alive(pid):
            self._table.observe(pid)
            self._on_map(pid)

    def _forked(self, pid: int, parent: int, is_known: bool) -> None:
        """A copy of an observed process: its mappings are there without having been made."""
        if not is_known and not self._table.known(parent):
            return
        try:
            files = self._mapped_now.of(pid)
        except (OtelGpuError, OSError, MemoryError) as e:
            self._missed(pid, e)
        else:
            self._looks.submit(pid, partial(self._look_at, pid, files, (), late=True))

    def _look_at(
        self,
        pid: int,
        files: Sequence[MappedFile],
        generations: Sequence[int],
        *,
        late: bool,
        since_ns: int | None = None,
    ) -> None:
        try:
            for file, library in self._catalogue.look_up([f for f in files if f.inode], generations):
                if self._looks_no_more.is_set():
                    return
                if library.kind.is_secondary and not self._table.known(pid):
                    self._aside.setdefault(pid, []).append((file, library))
                    continue
                self._report(pid, file, library, since_ns, late=late)
                for other, torch in self._aside.pop(pid, ()):
                    self._report(pid, other, torch, since_ns, late=late)
        except (OtelGpuError, OSError, MemoryError) as e:
            self._missed(pid, e)
        if late and not self._table.has(pid):
            self._table.mapped_before.forget(pid)
        if not late and self._table.known(pid):
            self._on_map(pid)

    def _missed(self, pid: int, error: Exception) -> None:
        _log.debug("process %d: %s", pid, error)
        if is_shortage(error):
            self._must_scan = True

    def _report(self, pid: int, file: MappedFile, library: Library, since_ns: int | None, *, late: bool) -> None:
        process = self._table.observe(pid, late=late)
        if self._users.add(process, library):
            self._on_library(process, library, file, since_ns)
