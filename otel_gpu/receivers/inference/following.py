"""Whose requests are followed? Programs are placed in one process after another, each time that it has mapped more.

What a process is placed for, is told to the kernel last: nothing is charged to a thread before it would be seen that it is
an event loop.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec
import numpy as np

from ...bpf.abi.requests import FOLLOWED
from ...bpf.linker import ObjectLinker
from ...bpf.links import Link, Placement
from ...bpf.maps import BpfMap
from ...components.counting.programs import Programs
from ...discovery.program_id import ProgramId
from ...errors import AttachError, OtelGpuError
from ...probes.sites import SiteRules
from ...runtime.fair_pool import FairPool
from ...runtime.supervision import Worker
from ...sandbox.files import MappedFile
from ...sandbox.mappings import executable_mappings
from ...sandbox.memory import MemoryFiles
from ...sandbox.parsers import Parsers, WorkError
from ...signals.structs import Record
from .executors import is_of_callbacks, runs_callbacks, runs_python_callbacks
from .follow_work import (
    LEARNING,
    LOOKING,
    Followable,
    FollowRequest,
    FollowSite,
    Image,
    PythonPlaces,
    is_grpc,
    is_looked_at,
    is_uvloop,
    look_at_process,
)
from .followed_table import FollowedTable

_log = logging.getLogger(__name__)

_AT_ONCE, _MOST = 4, 8
_RETRY_S, _MOST_TRIES = 0.5, 60
_TRUSTED_AFTER_NS = 1_000_000_000
"""So long after a process is followed, threads that were there before are believed to have shown what they are."""
_MAX_THREADS = 65_536
_LEARNS_AGAIN_S, _LEARNS_SELDOM_S = 0.5, 10.0
"""After how long at first, when the agent may have come amid a request, and later."""
_EPOLL_WAITS = frozenset({"x86_64": {232, 281, 441}, "aarch64": {22, 441}}.get(os.uname().machine, ()))
"""System calls: epoll_wait, epoll_pwait, epoll_pwait2."""

_Place = tuple[tuple[int, int], int, int, str]
"""Device, inode, offset, program."""


class _Followed(Record):
    """One process whose requests are followed, or are to be."""

    pid: int
    exec_id: int = 0
    links: list[Link] = msgspec.field(default_factory=list)
    placed: set[_Place] = msgspec.field(default_factory=set)
    is_told: bool = False
    """The kernel follows it."""
    python: PythonPlaces | None = None
    hides_loops: bool = False
    """Whether some of its threads are event loops is not seen."""
    since_boot_ns: int = 0
    trusted_ns: int = 0
    has_uvloop: bool = False
    grpc: tuple[int, int] = (0, 0)
    """From where to where gRPC's core is mapped."""
    learning: Link | None = None
    """What learns in which context uvloop runs callbacks, while it is to be learned."""
    learned_at: float = -math.inf
    learned: int = 0
    """How often."""
    tries: int = 0
    reason: str = ""

    @property
    def wants_to_learn(self) -> bool:
        """Whether that is to be learned now."""
        pause_s = min(_LEARNS_AGAIN_S * 2 ** min(self.learned, 10), _LEARNS_SELDOM_S)
        return self.has_uvloop and self.learning is None and time.monotonic() - self.learned_at > pause_s


class FollowedPrograms:
    """Places programs in processes, and takes them away. Safe to use from several threads."""

    def __init__(
        self,
        parsers: Parsers,
        linker: ObjectLinker,
        kernel: Programs,
        followed: FollowedTable,
        waiting_loops: BpfMap,
        rules: SiteRules,
        was_there: Callable[[int], bool],
        on_followed: Callable[[int], None] = lambda _pid: None,
        *,
        follows_callbacks: bool = True,
    ) -> None:
        self._parsers = parsers
        self._linker = linker
        self._kernel = kernel
        self._table = followed
        self._loops = waiting_loops
        self._rules = rules
        self._was_there = was_there
        self._on_followed = on_followed
        self._follows_callbacks = follows_callbacks
        self._lock = threading.RLock()
        self._processes: dict[int, _Followed] = {}
        self._due: dict[int, float] = {}
        self._closed = False
        self._places_no_more = threading.Event()
        self._looks = FairPool("request looks", at_once=_AT_ONCE, most=_MOST)
        self._retries = Worker("requests", self._retry)
        self._retries.start()

    @property
    def workers(self) -> list[Worker]:
        """The threads that look at processes."""
        return [self._retries, *self._looks.workers]

    def close(self, timeout_s: float = 5.0) -> None:
        """Take the programs out of all processes; idempotent."""
        self.place_no_more()
        self._retries.stop(timeout_s)
        self._looks.close(timeout_s)
        with self._lock:
            self._closed = True
            processes, self._processes = self._processes, {}
        for process in processes.values():
            self._release(process)

    def place_no_more(self) -> None:
        """Place nothing that is not in place yet, without a wait."""
        self._places_no_more.set()

    def observe(self, pid: int) -> None:
        """Follow a process, or look at it again after it mapped more code."""
        if not self._places_no_more.is_set():
            self._looks.submit(pid, lambda: self._look(pid))

    def forget(self, program: ProgramId) -> None:
        """Follow a program no more that has ended; its process may run another one by now, which is followed on."""
        with self._lock:
            process = self._processes.get(program.pid)
            if process is None or process.exec_id != program.exec_id:
                return
            del self._processes[program.pid]
            self._due.pop(program.pid, None)
        self._release(process)

    def is_followed(self, pid: int) -> bool:
        """Tell whether the kernel follows a process."""
        process = self._processes.get(pid)
        return process is not None and process.is_told

    def is_trusted(self, pid: int) -> bool:
        """Tell whether what threads read that were there before is charged to requests."""
        process = self._processes.get(pid)
        return process is not None and process.is_told and time.monotonic_ns() >= process.trusted_ns

    def refused(self) -> dict[str, int]:
        """Return how many processes are not followed, by reason."""
        with self._lock:
            reasons = [process.reason for process in self._processes.values() if process.reason]
        return {reason: reasons.count(reason) for reason in reasons}

    def settle(self, timeout_s: float) -> bool:
        """Wait until everything that was asked for is looked at; False when the time is up first."""
        deadline = time.monotonic() + timeout_s
        while self._looks.waiting() or self._due:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def _retry(self) -> float:
        now = time.monotonic()
        with self._lock:
            due = [pid for pid, at in self._due.items() if at <= now]
            for pid in due:
                del self._due[pid]
            learning = [p for p in self._processes.values() if p.is_told and p.has_uvloop]
        for pid in due:
            self.observe(pid)
        for process in learning:
            self._learn(process)
        return _RETRY_S / 2

    def _learn(self, process: _Followed) -> None:
        """Take away what has learned, and place it again where there is more to learn."""
        if (value := self._table.get(process.pid)) is None:
            return
        if process.learning is not None and value["has_learned"]:
            link, process.learning, process.learned_at = process.learning, None, time.monotonic()
            process.learned += 1
            link.close()
            self._tell(process)
        elif value["learns_anew"] and process.wants_to_learn:
            self.observe(process.pid)

    def _look(self, pid: int) -> None:
        running = self._kernel.running(pid)
        if running is None or self._places_no_more.is_set():
            return
        with self._lock:
            process = self._processes.get(pid)
            if process is not None and process.exec_id != running[0]:
                self._processes.pop(pid)
                self._release(process)
                process = None
            if process is None:
                process = self._processes[pid] = _Followed(pid, running[0])
        try:
            self._place_in(process)
        except (OtelGpuError, OSError) as e:
            _log.debug("process %d: its requests are not followed: %s", pid, e)
            process.reason = "it cannot be looked at"
            self._try_again(process)

    def _try_again(self, process: _Followed) -> None:
        process.tries += 1
        with self._lock:
            if process.tries <= _MOST_TRIES and self._processes.get(process.pid) is process:
                self._due[process.pid] = time.monotonic() + _RETRY_S

    def _place_in(self, process: _Followed) -> None:
        mapped = executable_mappings(self._parsers, process.pid)
        executable = _executable(process.pid)
        has_rclpy = self._follows_callbacks and any(runs_python_callbacks(f.path) for f in mapped)
        has_callbacks = has_rclpy or (self._follows_callbacks and any(runs_callbacks(f.path) for f in mapped))
        files = [
            f
            for f in mapped
            if f.inode and (is_looked_at(f.path) or f.path == executable or (has_callbacks and is_of_callbacks(f.path)))
        ]
        process.has_uvloop = any(is_uvloop(f.path) for f in mapped)
        grpc = next(((f.start, f.end) for f in mapped if is_grpc(f.path)), (0, 0))
        images = tuple(Image(f.start, f.end, f.offset, f.path) for f in files)
        own = next((number for number, image in enumerate(images) if image.path == executable), -1)
        request = FollowRequest(self._rules, images, own, has_callbacks, has_rclpy)
        shown = MemoryFiles.of(process.pid)
        with self._parsers.begin(look_at_process, [*shown, *files], request, limits=LOOKING, keep=True) as job:
            try:
                found = next(iter(job.answers()))
            except StopIteration as e:
                raise WorkError("a child said nothing") from e
            if not found.has_started:
                process.reason = "its interpreter has not started"
                self._try_again(process)
                return
            process.reason = found.reason
            if found.reason:
                _log.warning("process %d: its requests are not followed: %s", process.pid, found.reason)
                return
            self._place(process, files, found, {n - len(shown): fd for n, fd in job.kept.items()})
        with self._lock:
            if self._closed or self._processes.get(process.pid) is not process:
                self._release(process)
                return
        if not process.is_told or process.python != found.python or process.grpc != grpc:
            process.grpc = grpc
            process.python, process.hides_loops = found.python, found.hides_loops
            self._tell(process)

    def _place(self, process: _Followed, files: list[MappedFile], found: Followable, kept: dict[int, int]) -> None:
        by_program: dict[tuple[int, str, bool], list[FollowSite]] = {}
        for site in found.sites:
            file = files[site.image]
            is_unwanted = site.program == LEARNING and not process.wants_to_learn
            if _place(file, site) not in process.placed and not is_unwanted:
                by_program.setdefault((site.image, site.program, site.at_return), []).append(site)
        # Returns before entries, and what ends a claim before what makes one.
        for (image, program, at_return), sites in sorted(by_program.items(), key=lambda i: _ORDER.index(i[0][1])):
            if self._places_no_more.is_set():
                raise AttachError("the agent ends")
            file = files[image]
            path = f"/proc/self/fd/{kept[image]}"
            placements = [Placement(site.offset, site.cookie) for site in sites]
            link = self._linker.place(program, path, placements, at_return=at_return, pid=process.pid)
            if program == LEARNING:
                process.learning = link
            else:
                process.links.append(link)
                process.placed |= {_place(file, site) for site in sites}

    def _tell(self, process: _Followed) -> None:
        """Have the kernel follow a process."""
        value = np.zeros((), FOLLOWED)
        value["exec_id"] = process.exec_id
        if (python := process.python) is not None:
            for name in ("thread_state", "thread_offset", "thread_module", "runtime", "runtime_end", "context_offset"):
                value[name] = getattr(python, name)
            value["python"], value["python_end"] = python.code.start, python.code.end
            value["threads_have_contexts"] = python.threads_have_contexts
            for name, offset in python.frames.items():
                value[name] = offset
        loops = list(_loops_of(process.pid))
        for tid in loops:
            self._loops.put((process.pid << 32 | tid).to_bytes(8, "little"), b"\1")
        value["grpc"], value["grpc_end"] = process.grpc
        value["has_loops"] = process.hides_loops or bool(loops)
        if not process.since_boot_ns:
            process.since_boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            process.trusted_ns = time.monotonic_ns() + _TRUSTED_AFTER_NS
        value["since_boot_ns"], value["trusted_ns"] = process.since_boot_ns, process.trusted_ns
        known = self._table.get(process.pid)
        if known is not None and known["exec_id"] == process.exec_id:
            value["was_there"], value["worked_ns"] = known["was_there"], known["worked_ns"]
        else:
            value["was_there"] = self._was_there(process.pid)
        self._kernel.meet(process.pid)
        self._table.put(process.pid, value)
        process.is_told = True
        process.tries = 0
        self._on_followed(process.pid)

    def _release(self, process: _Followed) -> None:
        with suppress(OSError):
            self._table.remove(process.pid, process.exec_id)
        links, process.links = process.links, []
        if process.learning is not None:
            links.append(process.learning)
            process.learning = None
        for link in links:
            link.close()
        process.placed.clear()
        process.is_told = False


def _place(file: MappedFile, site: FollowSite) -> _Place:
    return file.device, file.inode, site.offset, site.program


_ORDER = (
    "callback_ends",
    "exception_caught",
    "message_taken",
    "message_wanted",
    "guard_triggered",
    "timer_called",
    "callback_begins",
    "tls_ends",
    "tls_shook_hands",
    "tls_written",
    "tls_read",
    "tls_called_ex",
    "tls_called",
    "loop_waits",
    "thread_waits",
    "connection_accepted",
    "context_ends",
    "context_entered",
    "context_copied",
    "context_copied_by_method",
    "item_taken",
    "item_wanted",
    "item_put",
    "pipe_was_read",
    "pipe_read",
    "pipe_was_written",
    "pipe_written",
)


def _executable(pid: int) -> bytes:
    with suppress(OSError):
        return os.readlink(os.fsencode(f"/proc/{pid}/exe"))
    return b""


def _loops_of(pid: int) -> Iterable[int]:
    """Yield the threads that wait for several descriptors at a time now."""
    with suppress(OSError):
        for tid in os.listdir(f"/proc/{pid}/task")[:_MAX_THREADS]:
            with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/task/{tid}/syscall") as file:
                number, *arguments = file.read(256).split()
                if number.isdigit() and int(number) in _EPOLL_WAITS and int(arguments[2], 16) >= 2:
                    yield int(tid)
