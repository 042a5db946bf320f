"""Which processes do we observe, and whose is a row that the kernel counted?

The kernel counts by pid and exec id, a number for one program that a process runs: it changes when the pid is reused and at
every exec. A program is known here by that number too. Discovery, which meets processes first, asks the kernel which
program a process runs now, before and after it reads of it in /proc; and a program that first shows itself to the
kernel comes with what the kernel knows of it, so that it has its name even if it has ended, or become another, since.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

import msgspec

from ..errors import ProcessGoneError
from ..runtime.supervision import Health
from ..sandbox.parsers import Parsers
from ..signals.metrics import Resource
from ..signals.structs import Frozen, Record
from . import procfs
from .identification import Identification, Known
from .mapped_before import MappedBefore
from .naming import NamingReader
from .process_contexts import ProcessContexts
from .process_info import ProcessInfo, Unread, kernel_info
from .program_id import ProgramId
from .program_names import needs_name
from .resource import Identities
from .selection import EVERYTHING, Selection

_MAX_ENDED = 4096
_TRIES = 3
"""A program that is another one each time that it is looked at is taken for the last."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_HELD_S = 5.0
"""How long the kernel may still be at a program that /proc says has ended."""


class Began(Frozen, order=True):
    """When a program began: programs of one pid are in this order."""

    start_ns: int
    """Its process, CLOCK_BOOTTIME."""
    executions: int
    """How often that had called exec."""

    @property
    def start_ticks(self) -> int:
        """When its process began as /proc says it: clock ticks after boot."""
        return self.start_ns * _TICKS_PER_S // 10**9


class KernelProgram(Protocol):
    """What the kernel keeps of a program itself."""

    @property
    def began(self) -> Began: ...

    @property
    def comm(self) -> str: ...

    @property
    def parent(self) -> int: ...

    @property
    def is_announced(self) -> bool:
        """Whether it has said who it is: that may not have been taken in yet."""

    @property
    def ended_s(self) -> float | None:
        """When it ended, by `time.monotonic`; None while it runs."""


class KernelPrograms(Protocol):
    """What the kernel says of programs."""

    def running(self, pid: int) -> tuple[int, Began] | None:
        """Return which program a process runs now, by its exec id, and when that began; None when it is gone."""

    def all_running(self) -> Mapping[int, int]:
        """Return the exec id of the program that each process runs now, by pid."""

    def state(self, program: ProgramId) -> KernelProgram | None:
        """Return what the kernel keeps of a program; None for nothing."""

    def states(self) -> Mapping[ProgramId, KernelProgram]:
        """Return every program that the kernel keeps something of."""


_BEFORE_ALL = Began(0, 0)


class Process(Record, eq=False):
    """One program run by one process, from exec to exec or exit."""

    pid: int
    identity: Resource | Known | Identification
    start_ticks: int
    late: bool = False
    """It may have used CUDA before the probes were there."""
    exec_id: int | None = None
    began: Began | None = None
    is_met: bool = False
    """Discovery has seen it, and with it whether it is late."""
    ended: bool = False
    ended_s: float = 0.0
    libraries: set[str] = msgspec.field(default_factory=set)

    @property
    def program(self) -> ProgramId:
        """Which program it is; of exec id 0 where the kernel has not told it."""
        return ProgramId(self.pid, self.exec_id or 0)

    @property
    def resource(self) -> Resource:
        """Who it is; waits, for seconds at most, where that is still being read."""
        return self._known().resource

    @property
    def environment(self) -> Mapping[str, str] | None:
        """The variables (`process_info.VARIABLES`) it was started with; None where they could not be read. Waits likewise."""
        return self._known().environment

    @property
    def known(self) -> Resource | None:
        """Who it is; None, without a wait, where that is still being read."""
        identity = self.identity
        if isinstance(identity, Identification):
            return identity.get().resource if identity.is_known else None
        return identity.resource if isinstance(identity, Known) else identity

    def meet(self, *, late: bool) -> None:
        """Note what discovery says of it, the first time."""
        if not self.is_met:
            self.is_met, self.late = True, late

    def end(self) -> None:
        """Note that it runs no longer; idempotent."""
        if not self.ended:
            self.ended, self.ended_s = True, time.monotonic()

    def _known(self) -> Known:
        match self.identity:
            case Identification():
                return self.identity.get()
            case Known():
                return self.identity
        return Known(self.identity)


class ProcessTable:
    """The observed processes. Safe to use from several threads."""

    def __init__(
        self,
        extra: Mapping[str, str] = {},
        parsers: Parsers | None = None,
        selection: Selection = EVERYTHING,
    ) -> None:
        """Without `parsers` only what the kernel knows by itself tells who a process is: not its command, not its variables."""
        self.identities = Identities(extra, selection)
        self.mapped_before = MappedBefore()
        """What those had mapped that were there before their probes."""
        self._reader = None if parsers is None else NamingReader(parsers)
        self._contexts = None if parsers is None else ProcessContexts(parsers)
        self._lock = threading.Lock()
        self._by_pid: dict[int, list[Process]] = {}
        self._names: dict[int, str] = {}
        self._kernel: KernelPrograms | None = None

    def __iter__(self) -> Iterator[Process]:
        with self._lock:
            return iter([p for programs in self._by_pid.values() for p in programs])

    def ask(self, kernel: KernelPrograms) -> None:
        """Tell programs apart by what the kernel says from now on, those that are known already among them."""
        self._kernel = kernel
        for process in self:
            self.forget(process)
            if not process.ended:
                self.observe(process.pid, late=process.late)

    def running(self) -> dict[int, ProgramId]:
        """Return the program that each process runs now, by pid; of none where nobody tells programs apart."""
        running = {} if self._kernel is None else self._kernel.all_running()
        return {pid: ProgramId(pid, exec_id) for pid, exec_id in running.items()}

    def runs(self, program: ProgramId) -> bool:
        """Say whether a process runs this program now."""
        running = self._running(program.pid)
        return running is not None and running[0] == program.exec_id

    def observe(self, pid: int, *, late: bool = False) -> Process:
        """Return the program that a pid runs now, learning who it is if it is new."""
        ticks = _start_ticks(pid)
        running: tuple[int, Began] | None = None
        identity: Resource | Identification = Resource(())
        for _ in range(_TRIES):
            running = self._running(pid)
            with self._lock:
                if (known := self._known(pid, running, ticks)) is not None:
                    known.meet(late=late)
                    return known
            identity = self._identity(pid)
            if self._running(pid) == running:
                break
        process = _made(pid, identity, running, ticks)
        process.meet(late=late)
        return self._insert(process)

    def announced(self, exec_id: int, began: Began, info: ProcessInfo, *, is_whole: bool, late: bool) -> Process:
        """Take in what the kernel said of a program that showed itself; `is_whole` where that is all there is."""
        info = replace(info, start_ticks=began.start_ticks)
        running = (exec_id, began)
        with self._lock:
            known = self._find(info.pid, exec_id)
        if known is not None:
            if is_whole and isinstance(known.identity, Identification):
                self._supply(info, known.identity)
            return known
        if not is_whole and self._running(info.pid) == running:
            return self.observe(info.pid, late=late)
        if self.identities.needs_users:
            user = procfs.user(info.pid)
            # Of one that has ended another process may have the number.
            info = replace(info, user=user if self._running(info.pid) == running else None)
        process = _made(info.pid, self._announced_identity(info), running, -1)
        process.late = late
        return self._insert(process)

    def executed(self, pid: int, comm: str) -> None:
        """Note that a pid runs another program now."""
        with self._lock:
            self._names[pid] = comm
            if len(self._names) > _MAX_ENDED:
                self._names.pop(next(iter(self._names)))
        self._end_all_but_running(pid)

    def exited(self, pid: int) -> Process | None:
        """Note that a process has ended; return its last program if that was observed."""
        with self._lock:
            self._names.pop(pid, None)
            current = self._current(pid)
        self._end_all_but_running(pid)
        return current if current is not None and current.ended else None

    def known(self, pid: int) -> bool:
        """Say whether the program that a pid runs now is observed."""
        return self.current(pid) is not None

    def has(self, pid: int) -> bool:
        """Say whether any program of a process is observed, or was until lately."""
        with self._lock:
            return pid in self._by_pid

    def current(self, pid: int) -> Process | None:
        """Return the program that a pid runs now, if it is observed."""
        with self._lock:
            return self._current(pid)

    def of_resource(self, resource: Resource) -> Process | None:
        """Return the program that a resource is of; of several under one pid the last."""
        pid = next((value for name, value in resource.attributes if name == "process.pid"), None)
        with self._lock:
            programs = list(self._by_pid.get(pid, ())) if isinstance(pid, int) else []
        # Who a program is may still be being read: nobody else waits for that.
        return next((p for p in reversed(programs) if p.resource == resource), None)

    def awaits(self, program: ProgramId) -> bool:
        """Return whether the kernel has announced a program that is not known here yet: the announcement is on its way."""
        with self._lock:
            if self._find(*program) is not None:
                return False
        state = None if self._kernel is None else self._kernel.state(program)
        return state is not None and state.is_announced

    def owner(self, program: ProgramId) -> Process:
        """Return whose rows a program's are."""
        pid, exec_id = program
        with self._lock:
            if (known := self._find(pid, exec_id)) is not None:
                return known
        if self._kernel is None:
            process = self.observe(pid, late=True)
            process.exec_id = exec_id if process.exec_id is None else process.exec_id
            return process
        # What it said of itself was lost: perhaps it still runs.
        running = self._running(pid)
        if running is not None and running[0] == exec_id:
            return self.observe(pid, late=True)
        return self._unannounced(program, self._kernel.state(program))

    def check_alive(self) -> None:
        """Mark the processes that ended without telling."""
        for process in self:
            if not process.ended:
                running = self._running(process.pid) if process.exec_id is not None else None
                if running[0] != process.exec_id if running is not None else not procfs.is_alive(process.pid):
                    process.end()

    def ended(self) -> list[Process]:
        """Return the programs that have ended, and of which the kernel counts nothing any more."""
        states = self._kernel.states() if self._kernel is not None else {}
        now = time.monotonic()
        for program, state in states.items():
            if state.ended_s is not None:
                with self._lock:
                    process = self._find(*program)
                if process is None and (not state.is_announced or now - state.ended_s > _HELD_S):
                    process = self._unannounced(program, state)
                if process is not None:
                    process.end()
        return [p for p in self if p.ended and (_is_over(p, states) or now - p.ended_s > _HELD_S)]

    def forget(self, process: Process) -> None:
        """Drop a program that has ended and whose last counts are exported."""
        known = process.known
        with self._lock:
            programs = self._by_pid.get(process.pid, [])
            if process in programs:
                programs.remove(process)
            is_shared = any(one.known == known for one in programs)
            if not programs:
                self._by_pid.pop(process.pid, None)
                self.mapped_before.forget(process.pid)
        if known is not None and not is_shared:
            self.identities.forget(known)

    def health(self) -> list[Health]:
        """Say how the threads are that find out who processes are."""
        return [health for part in (self._reader, self._contexts) if part is not None for health in part.health()]

    def close(self) -> None:
        """Find out nothing more; idempotent."""
        for part in (self._reader, self._contexts):
            if part is not None:
                part.close()

    def _identity(self, pid: int) -> Resource | Identification:
        info = kernel_info(pid)
        with self._lock:
            info = info if info.comm else replace(info, comm=self._names.get(pid, ""))
        if self._reader is None:
            return self.identities.of_program(info)
        identification = Identification(info, self.identities.of_program)
        self._reader.complete(info, identification)
        if self._contexts is not None:
            self._contexts.follow(pid, identification)
        return identification

    def _announced_identity(self, info: ProcessInfo) -> Known | Identification:
        if self._reader is None or not needs_name(info):
            return self._known_by(info)
        identification = Identification(info, self.identities.of_program)
        self._reader.supply(info, identification)
        return identification

    def _supply(self, info: ProcessInfo, identification: Identification) -> None:
        if self._reader is None:
            identification.supply(info)
        else:
            self._reader.supply(info, identification)

    def _known_by(self, info: ProcessInfo) -> Known:
        environment = None if info.unread is not None else dict(info.variables)
        return Known(self.identities.of_program(info), environment)

    def _unannounced(self, program: ProgramId, state: KernelProgram | None) -> Process:
        """Take in a program that is gone, and of which nothing is known but what the kernel keeps of it."""
        info, began = ProcessInfo(program.pid, unread=Unread.ENDED), _BEFORE_ALL
        if state is not None:
            began = state.began
            info = replace(info, parent_pid=state.parent or None, comm=state.comm, start_ticks=began.start_ticks)
        process = _made(program.pid, self._known_by(info), (program.exec_id, began), -1)
        process.late = True
        return self._insert(process)

    def _running(self, pid: int) -> tuple[int, Began] | None:
        return None if self._kernel is None else self._kernel.running(pid)

    def _end_all_but_running(self, pid: int) -> None:
        with self._lock:
            if pid not in self._by_pid:
                return
        running = self._running(pid)
        with self._lock:
            for process in self._by_pid.get(pid, ()):
                if running is None or process.exec_id != running[0]:
                    process.end()

    def _current(self, pid: int) -> Process | None:
        programs = self._by_pid.get(pid)
        return programs[-1] if programs and not programs[-1].ended else None

    def _find(self, pid: int, exec_id: int) -> Process | None:
        return next((p for p in self._by_pid.get(pid, ()) if p.exec_id == exec_id), None)

    def _known(self, pid: int, running: tuple[int, Began] | None, ticks: int) -> Process | None:
        if running is not None:
            return self._find(pid, running[0])
        current = self._current(pid)
        if self._kernel is not None and current is None:
            # It is gone: whatever is asked was about its last program.
            return next(reversed(self._by_pid.get(pid, ())), None)
        if current is not None and (ticks < 0 or current.start_ticks in (ticks, -1)):
            return current
        return None

    def _insert(self, process: Process) -> Process:
        """Put a program in its place among those of its pid: all but the last have ended."""
        with self._lock:
            if process.exec_id is not None and (known := self._find(process.pid, process.exec_id)) is not None:
                if (resource := process.known) is not None and resource != known.known:
                    self.identities.forget(resource)
                return known
            programs = self._by_pid.setdefault(process.pid, [])
            later = [p for p in programs if process.began and p.began and p.began > process.began]
            programs.insert(len(programs) - len(later), process)
            for one in programs[:-1]:
                one.end()
            return process


def _is_over(process: Process, states: Mapping[ProgramId, KernelProgram]) -> bool:
    if process.exec_id is None:
        return True
    state = states.get(process.program)
    return state is None or state.ended_s is not None


def _made(
    pid: int, identity: Resource | Known | Identification, running: tuple[int, Began] | None, ticks: int
) -> Process:
    exec_id, began = running if running is not None else (None, None)
    return Process(pid, identity, ticks, exec_id=exec_id, began=began)


def _start_ticks(pid: int) -> int:
    try:
        return procfs.stat(pid).start_ticks
    except (ProcessGoneError, PermissionError):
        return -1
