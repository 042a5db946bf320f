"""Which process just mapped a library of interest? Scans once, then follows the kernel's events."""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Collection, Iterable

from ..errors import ElfError, ProcessGoneError
from ..printable import escaped
from . import procfs
from .events import Executed, Exited, Forked, Lost, Mapped, ProcessEvents
from .libraries import Library, LibraryCatalogue
from .processes import Process, ProcessTable

_log = logging.getLogger(__name__)
_POLL_S = 0.5

OnLibrary = Callable[[Process, Library, str], None]
"""(process, library, a path under which the library can be opened until the call returns)."""


class Watcher:
    """Follows the processes of this host in a thread of its own and reports who maps what."""

    def __init__(
        self,
        table: ProcessTable,
        on_library: OnLibrary,
        *,
        pids: Collection[int] = (),
        on_exit: Callable[[Process], None] = lambda _process: None,
        on_map: Callable[[int], None] = lambda _pid: None,
    ) -> None:
        """Subscribe; nothing is reported before `scan` or `start`. `pids` limits who is reported.

        `on_map` is told of every executable mapping that an observed process makes.
        """
        self._table = table
        self._on_library = on_library
        self._on_exit = on_exit
        self._on_map = on_map
        self._pids = set(pids)
        self._catalogue = LibraryCatalogue()
        self._events = ProcessEvents()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otel-gpu-discovery", daemon=True)

    def scan(self, pids: Iterable[int] | None = None) -> None:
        """Look at processes as they are now: all, or these."""
        for pid in self._pids or procfs.pids() if pids is None else pids:
            if self._wants(pid):
                self._look(pid, late=True)

    def start(self) -> None:
        """Follow events from here on."""
        self._thread.start()

    def stop(self) -> None:
        """Stop following; idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        self._events.close()

    def _wants(self, pid: int) -> bool:
        return not self._pids or pid in self._pids

    def _run(self) -> None:
        while not self._stop.is_set():
            for event in self._events.wait(_POLL_S):
                try:
                    self._handle(event)
                except (ProcessGoneError, ElfError, OSError, struct.error) as e:
                    _log.debug("%s: %s", event, e)

    def _handle(self, event: object) -> None:
        match event:
            case Mapped() if self._wants(event.pid):
                mapping = procfs.FileMapping(
                    event.start, event.end, event.offset, event.device, event.inode, event.path
                )
                self._look_at(event.pid, mapping, late=False)
                if self._table.known(event.pid):
                    self._on_map(event.pid)
            case Forked() if event.parent != event.pid and self._wants(event.pid) and self._table.known(event.parent):
                # A copy of an observed process: its mappings are there without having been made.
                self._look(event.pid, late=True)
            case Executed():
                self._table.executed(event.pid, event.comm)
            case Exited() if self._table.known(event.pid) and not procfs.is_alive(event.pid):
                if (process := self._table.exited(event.pid)) is not None:
                    self._on_exit(process)
            case Lost():
                _log.warning("the kernel dropped %d process events: looking at every process again", event.count)
                self.scan()
            case _:
                pass

    def _look(self, pid: int, *, late: bool) -> None:
        try:
            mappings = procfs.executable_mappings(pid)
        except (ProcessGoneError, PermissionError) as e:
            _log.debug("%s", e)
            return
        for mapping in mappings:
            self._look_at(pid, mapping, late=late)

    def _look_at(self, pid: int, mapping: procfs.FileMapping, *, late: bool) -> None:
        openers = (mapping.opener(pid), f"/proc/{pid}/root{mapping.path}", mapping.path)
        library = self._catalogue.look_up(mapping.device, mapping.inode, mapping.path, openers)
        if library is None:
            return
        process = self._table.observe(pid, late=late)
        if library.path in process.libraries:
            return
        process.libraries.add(library.path)
        for opener in openers:
            try:
                file = open(opener, "rb")  # noqa: SIM115 - closed below
            except OSError:
                continue
            # Held open: placing hundreds of probes takes longer than some processes live.
            with file:
                self._on_library(process, library, f"/proc/self/fd/{file.fileno()}")
            return
        _log.debug("%s of process %d cannot be opened any more", escaped(mapping.path), pid)
