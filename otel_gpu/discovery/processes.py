"""Which processes do we observe, and whose is a row that the kernel counted?

The kernel counts by pid and incarnation, an opaque number that changes when a pid is reused and at every
exec. Discovery knows programs by pid, start time and exec events. The two meet here: the incarnations of
a pid, in the order in which they first show, belong to its programs in the order in which they ran.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..errors import ProcessGoneError
from ..model import Resource
from ..process.parsers import Parsers
from ..supervision import Health
from . import procfs
from .facts import FactReader, facts_of_kernel
from .identification import Identification, Known
from .resource import Identities

_MAX_ENDED = 4096


@dataclass(slots=True, eq=False)
class Process:
    """One program run by one process, from exec to exec or exit."""

    pid: int
    identity: Resource | Known | Identification
    start_ticks: int
    late: bool = False
    """It may have used CUDA before the probes were there."""
    incarnation: int | None = None
    ended: bool = False
    libraries: set[str] = field(default_factory=set)

    @property
    def resource(self) -> Resource:
        """Who it is; waits, for seconds at most, where that is still being read."""
        return self._known().resource

    @property
    def environment(self) -> Mapping[str, str] | None:
        """The variables (`facts.VARIABLES`) it was started with; None where they could not be read. Waits likewise."""
        return self._known().environment

    def _known(self) -> Known:
        match self.identity:
            case Identification():
                return self.identity.get()
            case Known():
                return self.identity
        return Known(self.identity)


class ProcessTable:
    """The observed processes. Safe to use from several threads."""

    def __init__(self, extra: Mapping[str, str] = {}, parsers: Parsers | None = None) -> None:
        """Without `parsers` only what the kernel knows by itself tells who a process is: not its command, not its variables."""
        self.identities = Identities(extra)
        self._reader = None if parsers is None else FactReader(parsers)
        self._lock = threading.Lock()
        self._by_pid: dict[int, list[Process]] = {}
        self._names: dict[int, str] = {}

    def __iter__(self) -> Iterator[Process]:
        with self._lock:
            return iter([p for programs in self._by_pid.values() for p in programs])

    def observe(self, pid: int, *, late: bool = False) -> Process:
        """Return the program that a pid runs now, learning who it is if it is new."""
        try:
            ticks = procfs.stat(pid).start_ticks
        except (ProcessGoneError, PermissionError):
            ticks = -1
        with self._lock:
            current = self._current(pid)
            if current is not None and (ticks < 0 or current.start_ticks in (ticks, -1)):
                return current
            if current is not None:
                current.ended = True
            process = Process(pid, self._identity(pid, self._names.get(pid, "")), ticks, late)
            self._by_pid.setdefault(pid, []).append(process)
            return process

    def executed(self, pid: int, comm: str) -> None:
        """Note that a pid runs another program now."""
        with self._lock:
            if (current := self._current(pid)) is not None:
                current.ended = True
            self._names[pid] = comm
            if len(self._names) > _MAX_ENDED:
                self._names.pop(next(iter(self._names)))

    def exited(self, pid: int) -> Process | None:
        """Note that a process has ended; return it if it was observed."""
        with self._lock:
            self._names.pop(pid, None)
            current = self._current(pid)
            if current is not None:
                current.ended = True
            return current

    def known(self, pid: int) -> bool:
        """Say whether the program that a pid runs now is observed."""
        with self._lock:
            return self._current(pid) is not None

    def current(self, pid: int) -> Process | None:
        """Return the program that a pid runs now, if it is observed."""
        with self._lock:
            return self._current(pid)

    def of_resource(self, resource: Resource) -> Process | None:
        """Return the program that a resource is of; of several under one pid the last."""
        pid = next((value for name, value in resource.attributes if name == "process.pid"), None)
        with self._lock:
            programs = self._by_pid.get(pid, ()) if isinstance(pid, int) else ()
            return next((p for p in reversed(programs) if p.resource == resource), None)

    def owner(self, pid: int, incarnation: int) -> Process:
        """Return whose rows (pid, incarnation) are."""
        with self._lock:
            programs = self._by_pid.get(pid, ())
            for process in programs:
                if process.incarnation == incarnation:
                    return process
            for process in programs:
                if process.incarnation is None:
                    process.incarnation = incarnation
                    return process
        process = self.observe(pid, late=True)
        with self._lock:
            if process.incarnation is None:
                process.incarnation = incarnation
            elif process.incarnation != incarnation:
                # An exec that no event told of: the pid's present program is another.
                process.ended = True
                process = Process(pid, self._identity(pid), process.start_ticks, True, incarnation)
                self._by_pid[pid].append(process)
            return process

    def check_alive(self) -> None:
        """Mark the processes that ended without telling."""
        for process in self:
            if not process.ended and not procfs.is_alive(process.pid):
                process.ended = True

    def ended(self) -> list[Process]:
        """Return the programs that have ended and are still in the table."""
        return [p for p in self if p.ended]

    def forget(self, process: Process) -> None:
        """Drop a program that has ended and whose last counts are exported."""
        with self._lock:
            programs = self._by_pid.get(process.pid, [])
            if process in programs:
                programs.remove(process)
            if not programs:
                self._by_pid.pop(process.pid, None)

    def health(self) -> list[Health]:
        """Say how the threads are that find out who processes are."""
        return [] if self._reader is None else self._reader.health()

    def close(self) -> None:
        """Find out nothing more; idempotent."""
        if self._reader is not None:
            self._reader.close()

    def _identity(self, pid: int, fallback_name: str = "") -> Resource | Identification:
        facts = facts_of_kernel(pid)
        facts = facts if facts.comm else replace(facts, comm=fallback_name)
        if self._reader is None:
            return self.identities.of_program(facts)
        identification = Identification(facts, self.identities.of_program)
        self._reader.complete(facts, identification.supply)
        return identification

    def _current(self, pid: int) -> Process | None:
        programs = self._by_pid.get(pid)
        return programs[-1] if programs and not programs[-1].ended else None
