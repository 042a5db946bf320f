"""In which processes is RDMA seen, and when are their completions looked at? Programs are placed in one process after another.

What asks for completions is a busy loop: its probe is there as long as the process asks seldom, and in windows of time else. A
window ends when more was asked than may be looked at in a second, and the next one comes after so long that what the
probe costs is a two-hundredth of the time.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from ...bpf.abi.programs import PROGRAM_KEY
from ...bpf.abi.rdma import POLL_WINDOW, VerbsEventKind
from ...bpf.linker import ObjectLinker
from ...bpf.links import Link, Placement
from ...bpf.maps import BpfMap
from ...bpf.records import struct_of
from ...components.counting.programs import Programs
from ...discovery import procfs
from ...discovery.mapped_now import MappedNow
from ...discovery.program_id import ProgramId
from ...errors import AttachError, OtelGpuError, ProcessGoneError
from ...probes.sites import SiteRules
from ...runtime.fair_pool import FairPool
from ...runtime.supervision import Worker
from ...sandbox.files import MappedFile
from ...sandbox.mappings import executable_mappings
from ...sandbox.memory import MemoryFiles
from ...sandbox.parsers import Parsers, WorkError
from ...signals.structs import Record
from .verbs_tables import version_of
from .verbs_work import (
    AT_RETURN_ONLY,
    EXTENDED,
    LOOKING,
    POLL,
    POLLING,
    POST_RECV,
    POST_SEND,
    QUEUE,
    Claim,
    VerbsAnswer,
    VerbsImage,
    VerbsRequest,
    VerbsSite,
    is_library,
    is_provider,
    look_for_verbs,
)

_log = logging.getLogger(__name__)
_POLL_WINDOW = struct_of(POLL_WINDOW)

_DUTY = 0.005
"""Part of the time in which probes are in the way of a process that asks for completions more often than may be looked at."""
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_FIRST_POLLS = 10
"""So many times as often may a process ask in its first window: what it says first tells most of its queue pairs."""
_STEP_S, _RETRY_S, _MOST_TRIES = 0.5, 1.0, 30
_SCAN_S = 60.0
_SCANS_AFTER_S = (1.0, 10.0)
"""When a process is looked at again: it may have been opening a device when the probes came, which takes a while."""
_MOST_CLAIMS = 512
"""Functions that one process says a provider has."""
_AT_ONCE, _MOST = 2, 4

_Place = tuple[tuple[int, int], int, int, str]
"""Device, inode, offset, program."""


class _Polls(Record):
    """When a process's completions are looked at."""

    number: int = 0
    sites: dict[_Place, tuple[int, VerbsSite]] = msgspec.field(default_factory=dict)
    """With the descriptor of the file."""
    links: list[Link] = msgspec.field(default_factory=list)
    began_at: float = 0.0
    """When the first of its probes was about to be placed."""
    opened_at: float = 0.0
    due_at: float = math.inf
    must_close: bool = False
    seen_s: float = 0.0
    since: float = msgspec.field(default_factory=time.monotonic)

    @property
    def is_open(self) -> bool:
        return bool(self.links)


class _Observed(Record):
    """A process in which programs are placed."""

    pid: int
    exec_id: int
    lock: threading.Lock = msgspec.field(default_factory=threading.Lock)
    links: list[Link] = msgspec.field(default_factory=list)
    placed: set[_Place] = msgspec.field(default_factory=set)
    claims: dict[Claim, None] = msgspec.field(default_factory=dict)
    refused_claims: int = 0
    files: dict[tuple[tuple[int, int], int], int] = msgspec.field(default_factory=dict)
    """Descriptors of files with functions that are looked at in windows."""
    scans: int = 0
    """How often it was looked at, and its memory scanned if it had a provider, since its opening of devices is seen."""
    has_library: bool = False
    sees_posts: bool = False
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    tries: int = 0
    due_at: float = math.inf
    polls: _Polls = msgspec.field(default_factory=_Polls)
    is_gone: bool = False

    @property
    def program(self) -> ProgramId:
        return ProgramId(self.pid, self.exec_id)


class VerbsProcesses:
    """Places programs in processes, and takes them away. Safe to use from several threads."""

    def __init__(
        self,
        parsers: Parsers,
        linker: ObjectLinker,
        kernel: Programs,
        windows: BpfMap,
        rules: SiteRules,
        *,
        polls: int,
        everybody: bool,
        is_chosen: Callable[[int], bool],
    ) -> None:
        """`everybody`: look for all processes that map libibverbs, and not only for those that `observe` names."""
        self._parsers, self._linker, self._kernel, self._rules = parsers, linker, kernel, rules
        self._windows = windows
        self._most_polls = polls
        self._is_chosen = is_chosen
        self._lock = threading.Lock()
        self._processes: dict[int, _Observed] = {}
        self._closed = False
        self._scan_at = 0.0 if everybody else math.inf
        self._looks = FairPool("rdma looks", at_once=_AT_ONCE, most=_MOST)
        self._mapped_now = MappedNow(parsers, lambda: self._take, logs=False)
        self._worker = Worker("rdma windows", self._step)
        self._worker.start()

    @property
    def workers(self) -> list[Worker]:
        """The threads that look at processes, and open and close windows."""
        return [self._worker, *self._looks.workers, *self._mapped_now.workers]

    def observe(self, pid: int) -> None:
        """Look at a process that has mapped code."""
        if not self._closed and self._is_chosen(pid):
            self._looks.submit(pid, lambda: self._look(pid))

    def told(self, kind: int, program: ProgramId, functions: tuple[int, ...]) -> None:
        """Take in what the kernel tells of a process."""
        with self._lock:
            process = self._processes.get(program.pid)
        if process is None or process.exec_id != program.exec_id:
            if kind == VerbsEventKind.OPENED:
                self.observe(program.pid)
            return
        if kind == VerbsEventKind.POLLED:
            process.polls.must_close = True
            self._worker.wake()
            return
        places = QUEUE if kind == VerbsEventKind.QUEUE else EXTENDED
        claims: Iterable[Claim] = (Claim(p, c, functions[n]) for n, (p, c) in places.items())
        if kind == VerbsEventKind.OPENED:
            claims = (Claim(p, 0, functions[n]) for n, p in enumerate((POLL, POST_SEND, POST_RECV)))
        new = [claim for claim in claims if claim.address and claim not in process.claims]
        room = max(_MOST_CLAIMS - len(process.claims), 0)
        process.refused_claims += len(new[room:])
        process.claims.update(dict.fromkeys(new[:room]))
        if new[:room]:
            self.observe(program.pid)

    def forget(self, programs: Iterable[ProgramId]) -> None:
        """Take the programs out of processes that have ended."""
        for pid, exec_id in programs:
            with self._lock:
                process = self._processes.get(pid)
                if process is None or process.exec_id != exec_id:
                    continue
                del self._processes[pid]
            self._release(process)

    def place_no_more(self) -> None:
        """Place nothing that is not in place yet, without a wait."""
        self._closed = True

    def close(self, timeout_s: float = 5.0) -> None:
        """Take the programs out of all processes; idempotent."""
        self._closed = True
        self._worker.stop(timeout_s)
        self._mapped_now.close(timeout_s)
        self._looks.close(timeout_s)
        with self._lock:
            processes, self._processes = self._processes, {}
        for process in processes.values():
            self._release(process)

    def settle(self, timeout_s: float) -> bool:
        """Wait until everything that was asked for is looked at; False when the time is up first."""
        return self._looks.settle(timeout_s)

    def open_windows(self) -> dict[ProgramId, int]:
        """Return the present window of each process whose completions are looked at now."""
        return {p.program: p.polls.number for p in self._all() if p.polls.is_open and not p.polls.must_close}

    def take_ratios(self) -> dict[ProgramId, float]:
        """Return during which part of the time since the last call each process's completions were looked at."""
        now = time.monotonic()
        found = {}
        for process in self._all():
            polls = process.polls
            with process.lock:
                if polls.is_open:
                    polls.seen_s += now - polls.opened_at
                    polls.opened_at = now
                seen_s, polls.seen_s = polls.seen_s, 0.0
                since, polls.since = polls.since, now
            if process.has_library:
                found[process.program] = min(seen_s / (now - since), 1.0) if now > since else 0.0
        return found

    def sees_posts(self) -> Mapping[ProgramId, bool]:
        """Return of each process that maps libibverbs whether functions are known by which it posts."""
        return {p.program: p.sees_posts for p in self._all() if p.has_library}

    def probes(self) -> tuple[int, dict[str, int]]:
        """Return how many probes are in place, and what was not placed, by reason."""
        refused: Counter[str] = Counter()
        placed = 0
        for process in self._all():
            placed += len(process.placed) + (len(process.polls.sites) if process.polls.is_open else 0)
            refused.update(process.refused)
            if process.refused_claims:
                refused["more functions than a process may have"] += process.refused_claims
        return placed, dict(refused)

    def _all(self) -> list[_Observed]:
        with self._lock:
            return list(self._processes.values())

    def _step(self) -> float:
        now = time.monotonic()
        for process in self._all():
            polls = process.polls
            with process.lock:
                if polls.must_close:
                    self._close_window(process)
                elif not polls.is_open and polls.due_at <= time.monotonic() and not self._closed:
                    self._open_window(process)
            if process.due_at <= now:
                process.due_at = math.inf
                self.observe(process.pid)
        if now >= self._scan_at and not self._closed:
            self._scan_at = now + _SCAN_S
            self._looks.submit(None, self._scan)
        return _STEP_S

    def _scan(self) -> None:
        self._mapped_now.read(procfs.pids())

    def _take(self, pid: int, files: Sequence[MappedFile]) -> None:
        if pid != os.getpid() and any(is_library(file.path) for file in files):
            self.observe(pid)

    def _look(self, pid: int) -> None:
        running = self._kernel.running(pid)
        if running is None or self._closed:
            return
        with self._lock:
            process = self._processes.get(pid)
            if process is not None and process.exec_id != running[0]:
                del self._processes[pid]
            else:
                running = None if process is not None else running
        if running is not None:
            if process is not None:
                self._release(process)
            process = _Observed(pid, running[0])
        assert process is not None
        try:
            self._place_in(process)
        except ProcessGoneError:
            self.forget([process.program])
        except (OtelGpuError, OSError) as e:
            _log.debug("process %d: its RDMA is not seen: %s", pid, e)
            process.refused["it cannot be looked at"] = 1
            process.tries += 1
            if process.tries <= _MOST_TRIES:
                process.due_at = time.monotonic() + _RETRY_S

    def _place_in(self, process: _Observed) -> None:
        mapped = [f for f in executable_mappings(self._parsers, process.pid) if f.inode]
        library = next((f for f in mapped if is_library(f.path)), None)
        if library is None:
            return
        process.has_library = True
        with self._lock:
            if self._closed:
                return
            self._processes[process.pid] = process
        claims = tuple(process.claims)
        addresses = [claim.address for claim in claims]
        files = [
            f
            for f in mapped
            if is_library(f.path) or is_provider(f.path) or any(f.start <= a < f.end for a in addresses)
        ]
        images = tuple(
            VerbsImage(f.start, f.end, f.offset, f.path, is_library(f.path), is_provider(f.path)) for f in files
        )
        is_due, sees_opening = process.scans < len(_SCANS_AFTER_S), bool(process.placed)
        must_scan = is_due and any(image.is_provider for image in images)
        request = VerbsRequest(self._rules, images, claims, must_scan, version_of(library.path) or 0)
        shown = MemoryFiles.of(process.pid)
        with self._parsers.begin(look_for_verbs, [*shown, *files], request, limits=LOOKING, keep=True) as job:
            try:
                found: VerbsAnswer = next(iter(job.answers()))
            except StopIteration as e:
                raise WorkError("a child said nothing") from e
            kept = {number - len(shown): descriptor for number, descriptor in job.kept.items()}
            for number, file in enumerate(files):
                opened = job.opened[number + len(shown)].id
                if opened is not None and opened.inode != file.inode:
                    kept.pop(number, None)
            with process.lock:
                if not process.is_gone:
                    process.refused = Counter(dict(found.refused))
                    self._place(process, files, found.sites, kept)
                    if is_due:
                        self._scanned(process, sees_opening=sees_opening)
                    if process.polls.sites and not process.polls.number:
                        self._open_window(process)

    @staticmethod
    def _scanned(process: _Observed, *, sees_opening: bool) -> None:
        """Have it looked at again until that was done since opening is seen, and some time later."""
        process.scans += sees_opening
        if process.scans < len(_SCANS_AFTER_S):
            process.due_at = time.monotonic() + _SCANS_AFTER_S[process.scans]

    def _place(
        self, process: _Observed, files: list[MappedFile], sites: Iterable[VerbsSite], kept: Mapping[int, int]
    ) -> None:
        groups: dict[tuple[int, str, bool], list[VerbsSite]] = {}
        polls = False
        for site in sites:
            file = files[site.image]
            place = file.device, file.inode, site.offset, site.program
            if site.image not in kept or place in process.placed:
                continue
            if site.program in POLLING:
                if place not in process.polls.sites:
                    process.polls.sites[place] = self._keep(process, file, kept[site.image]), site
                    polls = True
                continue
            process.placed.add(place)
            process.sees_posts = process.sees_posts or site.program in (POST_SEND, "extended_post")
            if site.return_program is not None:
                groups.setdefault((site.image, site.return_program, True), []).append(site)
            groups.setdefault((site.image, site.program, site.program in AT_RETURN_ONLY), []).append(site)
        # Returns before entries: an entry without its return would leave a call waiting.
        for (image, program, at_return), group in sorted(groups.items(), key=lambda item: not item[0][2]):
            placements = [Placement(site.offset, site.cookie) for site in group]
            path = f"/proc/self/fd/{kept[image]}"
            self._link(process, process.links, program, path, placements, at_return=at_return)
        if polls and process.polls.is_open:
            self._close_window(process)
            self._open_window(process)

    def _link(
        self,
        process: _Observed,
        links: list[Link],
        program: str,
        path: str,
        placements: list[Placement],
        *,
        at_return: bool,
    ) -> None:
        try:
            links.append(self._linker.place(program, path, placements, at_return=at_return, pid=process.pid))
        except AttachError as e:
            if len(placements) == 1:
                _log.debug("process %d: %s", process.pid, e)
                process.refused["the kernel refuses the place"] += 1
                return
            for one in placements:
                self._link(process, links, program, path, [one], at_return=at_return)

    def _keep(self, process: _Observed, file: MappedFile, descriptor: int) -> int:
        key = file.device, file.inode
        if key not in process.files:
            process.files[key] = os.dup(descriptor)
        return process.files[key]

    def _open_window(self, process: _Observed) -> None:
        polls = process.polls
        polls.number += 1
        polls.began_at = time.monotonic()
        groups: dict[tuple[bool, str, int], list[Placement]] = {}
        for descriptor, site in polls.sites.values():
            placement = Placement(site.offset, site.cookie)
            if site.return_program is not None:
                groups.setdefault((True, site.return_program, descriptor), []).append(placement)
            groups.setdefault((False, site.program, descriptor), []).append(placement)
        # Returns before entries, as elsewhere.
        for (at_return, program, descriptor), placements in sorted(groups.items(), key=lambda item: not item[0][0]):
            path = f"/proc/self/fd/{descriptor}"
            self._link(process, polls.links, program, path, placements, at_return=at_return)
        polls.opened_at = time.monotonic()
        polls.due_at = math.inf
        if polls.number == 1:
            # Before, the process had nothing that it could have asked.
            polls.since = polls.opened_at
        most = self._most_polls * (_FIRST_POLLS if polls.number == 1 else 1)
        self._put(process, is_open=True, most=min(most, 0xFFFFFFFF))

    def _close_window(self, process: _Observed) -> None:
        polls = process.polls
        polls.must_close = False
        self._put(process, is_open=False, most=0)
        for link in polls.links:
            link.close()
        polls.links.clear()
        now = time.monotonic()
        polls.seen_s += now - polls.opened_at
        # Placing probes and taking them away is time in which they are hit, too.
        pause_s = min(max((now - polls.began_at) / _DUTY, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
        polls.due_at = now + pause_s

    def _put(self, process: _Observed, *, is_open: bool, most: int) -> None:
        key = np.array([process.program], PROGRAM_KEY).tobytes()
        self._windows.put(key, _POLL_WINDOW.pack(process.polls.number, is_open, most, 0))

    def _release(self, process: _Observed) -> None:
        with process.lock:
            process.is_gone = True
            with contextlib.suppress(OSError):
                self._windows.delete(np.array([process.program], PROGRAM_KEY).tobytes())
            links = [*process.polls.links, *process.links]
            process.polls.links.clear()
            process.links.clear()
            process.polls.sites.clear()
            for link in links:
                link.close()
            for descriptor in process.files.values():
                os.close(descriptor)
            process.files.clear()
