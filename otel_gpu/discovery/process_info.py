"""What is known of a process that can tell who it is? Read from /proc here; the kernel's own events know it as well.

Most of it the kernel knows by itself. The command line and the environment lie in the process's memory, which may keep
whoever reads it waiting for ever: they are read by a child, beside whatever else goes on.
"""

from __future__ import annotations

import enum
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ..errors import ProcessGoneError
from ..runtime.fair_pool import FairPool
from ..runtime.supervision import Health
from ..sandbox.files import ProcessFile
from ..sandbox.parsers import Parsers, RefusedError, WorkError
from ..signals.structs import Frozen
from . import procfs
from .process_context_work import Value
from .process_info_work import READING, Strings, read_start

VARIABLES = frozenset(
    {
        "OTEL_SERVICE_NAME",
        "OTEL_RESOURCE_ATTRIBUTES",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "NVIDIA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
    }
)
"""The environment variables in which a process says who it is, and which GPUs are its."""

_NAMES = sorted(map(os.fsencode, VARIABLES))
_AT_ONCE = 16
_OF_ONE = 8
"""Of one user's processes: those who keep us waiting leave room for others."""
_TOGETHER = 64
"""Processes that are read by one child."""
_END_S = 1.0


class Unread(str, enum.Enum):
    """Why it is not known with which arguments and variables a process was started."""

    ENDED = "ended"
    """It has ended, or become another program, before it could be looked at."""
    NOT_PERMITTED = "not_permitted"
    NO_ANSWER = "no_answer"
    """Whoever reads it is kept waiting, or given nothing."""
    TOO_MANY = "too_many"
    """Too many processes were to be looked at."""


class ProcessInfo(Frozen):
    """One program run by one process, as found: nothing here is checked, shortened or escaped yet.

    What is not known is empty. Bytes that are no UTF-8 are kept as `os.fsdecode` keeps them.
    """

    pid: int
    parent_pid: int | None = None
    comm: str = ""
    executable: str = ""
    """The program's path, as the process sees it."""
    arguments: tuple[str, ...] = ()
    """The command line, program first."""
    variables: tuple[tuple[str, str], ...] = ()
    """Those of `VARIABLES` that stand in the environment it was started with."""
    cgroups: tuple[str, ...] = ()
    """The lines of /proc/PID/cgroup."""
    unread: Unread | None = None
    """Why there may be more arguments and variables."""
    published: tuple[tuple[bytes, Value], ...] = ()
    """What it publishes of itself as its process context, names and values."""
    user: int | None = None
    """Who runs it: the real user of the process."""
    start_ticks: int | None = None
    """When the process began: clock ticks after boot."""
    named_by: ProcessInfo | None = None
    """The ancestor that names it, where it has no name of its own."""


def kernel_info(pid: int) -> ProcessInfo:
    """Return what the kernel knows of a process by itself; of one that is gone only what it still tells."""
    parent_pid, comm, start_ticks = None, "", None
    cgroups = b""
    try:
        status = procfs.stat(pid)
        parent_pid, comm, start_ticks = status.parent, status.comm, status.start_ticks
        cgroups = procfs.read(pid, "cgroup")
    except (ProcessGoneError, OSError):
        pass
    return ProcessInfo(
        pid,
        parent_pid,
        comm,
        procfs.executable(pid) or "",
        cgroups=tuple(os.fsdecode(cgroups).splitlines()),
        user=procfs.user(pid),
        start_ticks=start_ticks,
    )


class _Request(Frozen):
    """A process that is to be looked at."""

    info: ProcessInfo
    start: tuple[int, int]
    then: Callable[[ProcessInfo], None]

    def answer(self, parts: Sequence[Strings], unread: Unread | None) -> None:
        """Tell what was read: nothing, the arguments, or the variables too."""
        info = self.info
        if start_of(info.pid) != self.start:
            self.then(replace(info, unread=Unread.ENDED))
            return
        arguments, variables = [part.strings for part in (*parts, Strings([]), Strings([]))][:2]
        unread = unread or next((_reason(part.error) for part in parts if part.error), None)
        if not arguments and unread is None:
            # A program has at least its name, unless that very memory cannot be read.
            unread = Unread.NO_ANSWER
        self.then(
            replace(
                info,
                arguments=tuple(map(os.fsdecode, arguments)),
                variables=tuple(dict(map(_variable, variables)).items()),
                unread=unread,
            )
        )


class ProcessInfoReader:
    """Reads with which arguments and variables processes were started. Safe to use from several threads.

    Those of one user that come together are read by one child. Where that does not come to its end, each of them has a
    child of its own.
    """

    def __init__(self, parsers: Parsers) -> None:
        self._parsers = parsers
        self._lock = threading.Lock()
        self._waiting: dict[int, list[_Request]] = {}
        """By user."""
        self._pool = FairPool("process info", at_once=_AT_ONCE, most=_AT_ONCE, of_one=_OF_ONE)

    def health(self) -> list[Health]:
        """Say how the threads are that wait for the children."""
        return [replace(worker.health(), component="process info") for worker in self._pool.workers]

    def complete(self, info: ProcessInfo, then: Callable[[ProcessInfo], None]) -> None:
        """Call `then`, once, from another thread as a rule, with what the process adds to what the kernel knows."""
        start = start_of(info.pid)
        if start is None:
            then(replace(info, unread=Unread.ENDED))
            return
        user = user_of(info.pid)
        with self._lock:
            self._waiting.setdefault(user, []).append(_Request(info, start, then))
        if not self._pool.submit(user, partial(self._read_together, user)):
            for request in self._taken(user):
                request.answer([], Unread.TOO_MANY)

    def close(self) -> None:
        """Read nothing more; idempotent."""
        self._pool.close(_END_S)

    def _taken(self, user: int) -> list[_Request]:
        with self._lock:
            waiting = self._waiting.pop(user, [])
            if rest := waiting[_TOGETHER:]:
                self._waiting[user] = rest
        return waiting[:_TOGETHER]

    def _read_together(self, user: int) -> None:
        requests = self._taken(user)
        parts, unread = self._parts(requests)
        for number, request in enumerate(requests):
            own = parts[2 * number : 2 * number + 2]
            if unread is None or len(own) == 2 or len(requests) == 1:
                request.answer(own, None if len(own) == 2 else unread)
            elif not self._pool.submit(user, partial(self._read_alone, request)):
                request.answer(own, Unread.TOO_MANY)

    def _read_alone(self, request: _Request) -> None:
        parts, unread = self._parts([request])
        request.answer(parts, unread)

    def _parts(self, requests: Sequence[_Request]) -> tuple[list[Strings], Unread | None]:
        """Return what a child says, two for each process, and why that is not all."""
        found: list[Strings] = []
        files = [ProcessFile(r.info.pid, name) for r in requests for name in ("cmdline", "environ")]
        try:
            if files:
                found.extend(self._parsers.run(read_start, files, _NAMES, limits=READING))
        except RefusedError as e:
            return found, _reason(e.error)
        except WorkError:
            return found, Unread.NO_ANSWER
        return found, None


def _variable(entry: bytes) -> tuple[str, str]:
    name, _, value = os.fsdecode(entry).partition("=")
    return name, value


def _reason(error: str) -> Unread:
    match error:
        case "PermissionError":
            return Unread.NOT_PERMITTED
        case "FileNotFoundError" | "ProcessLookupError":
            return Unread.ENDED
    return Unread.NO_ANSWER


def start_of(pid: int) -> tuple[int, int] | None:
    """Return what tells a program from one that the process, or another of its number, becomes; None where it is gone."""
    try:
        status = procfs.stat(pid)
    except (ProcessGoneError, OSError):
        return None
    return status.start_ticks, status.arguments_at


def user_of(pid: int) -> int:
    """Return whose process it is; -1 where it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1
