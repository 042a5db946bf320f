"""Which code launches, waits, copies, holds memory, runs? Stacks of the kernel, named and added up into profiles."""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...bpf.abi.programs import OWNER_AT, Loss, Table
from ...bpf.abi.samples import SampleType
from ...bpf.abi.stacks import Stop
from ...bpf.cpu_events import CpuSampler
from ...bpf.features import probe
from ...bpf.link_mode import LinkMode
from ...bpf.linker import ObjectLinker
from ...bpf.maps import BpfMap
from ...bpf.object import BpfObject
from ...bpf.pid_namespace import pid_namespace
from ...bpf.ringbuf import RingReader
from ...bpf.tail_calls import TailCalls
from ...bpf.tracepoints import TracepointLinks
from ...components import LibraryReceiver
from ...components.counting.device_time import DeviceTime
from ...components.counting.owners import Removal, by_key, by_value, programs_of
from ...components.counting.programs import SharedTables
from ...components.counting.request_spans import RequestSpans
from ...components.counting.shared import REQUEST_TABLES, StackTables
from ...discovery.libraries import Library
from ...discovery.processes import Process, ProcessTable
from ...discovery.program_id import ProgramId
from ...errors import UnsupportedKernelError
from ...probes.profile import (
    CPU_OF_REQUESTS_PROGRAM,
    CPU_PROGRAM,
    END_PROGRAMS,
    OFF_CPU_PROGRAMS,
    RELEASE_PROGRAM,
    SUBMISSION_PROGRAMS,
    programs_for,
)
from ...probes.sites import SiteRules
from ...runtime.supervision import Component, Health
from ...sandbox.files import File
from ...sandbox.parsers import Parsers
from ...signals import self_metrics
from ...signals.metrics import SelfReading
from ...signals.profiles import CPU, GPU_WAIT, OFF_CPU, TENSOR_INUSE_SPACE, Profile, ProfileType, Stack, shows_gpu_time
from ...stacks.cpython.process import PythonProcess
from ...stacks.symbols.stacks import STOPS
from ...stacks.unwind.cache import TableCache
from ...stacks.unwind.loader import UnwindLoader
from ..losses import loss_readings, read_losses
from .backward import BackwardCallers
from .blocked import STACKS, BlockedThreads, blocked_threads
from .gpu_time import GpuTime
from .held_memory import HeldMemory
from .remainders import Remainders
from .sites import ProfileSites
from .stack_queue import StackQueue
from .sums import FRAME_SIZE, SAMPLE_HEAD, KernelName, ProfileSums, StackSample, sample_size
from .tensor_memory import TensorMemory

_log = logging.getLogger(__name__)
_NAMES_S = 1.0
"""How long names are waited for that are still looked up when their profile is wanted."""

_GATHER_S, _GATHER_NEW_S = 0.5, 0.05
"""How long stacks wait for their names: to look seldom is cheap, but of a new program all is new, and it may end soon."""
_NEW_S = 5.0
_TABLES_COME_S = 1.0
"""How long the same is so after a stack ended for want of a table that could be asked for."""

_SHORTEST_STAY_NS = 1_000_000
"""Off the CPU; shorter ones are not counted."""

_NOT_UPROBES = {CPU_PROGRAM, CPU_OF_REQUESTS_PROGRAM, RELEASE_PROGRAM, *OFF_CPU_PROGRAMS, *END_PROGRAMS}
_SHARED = ("capturing", "busy", "threads", "programs", "used_by_all", "events", "targets")


class Progress(NamedTuple):
    """How far the reading of what stacks need has come."""

    is_ready: bool
    """Whether stacks can be taken through what most of them go through."""
    files: int
    """How many are still to be read."""
    reading: str
    """One that is being read now, for people; empty when there is none."""


class _Observed:
    """What is known of one program's stacks."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.held = HeldMemory()
        self.callers = BackwardCallers()


class ProfileReceiver(LibraryReceiver):
    """Takes stacks on the sites of the counts, in PyTorch, and on the CPUs."""

    def __init__(
        self,
        processes: ProcessTable,
        parsers: Parsers,
        types: Sequence[ProfileType],
        *,
        tables: StackTables,
        kernel_name: KernelName,
        take_busy: Callable[[], Mapping[Process, Mapping[int, DeviceTime]]] = dict,
        request_tables: Mapping[str, BpfMap] = {},
        request_spans: RequestSpans | None = None,
        only: Iterable[int] = (),
        rules: SiteRules | None = None,
        link: LinkMode = "auto",
        cpu_hz: int = 49,
        stacks_per_second: int = 400,
        table_rows: int = 1 << 23,
        table_share: float = 1.0,
        cache: TableCache | None = None,
        shows_threads: bool = False,
    ) -> None:
        """Load the programs; UnsupportedKernelError below kernel 5.17 and on other machines than x86-64."""
        if not probe().bpf_loop:
            raise UnsupportedKernelError(
                "this kernel cannot walk stacks: bpf_loop is missing; run 5.17 or later (metrics work from 5.10)"
            )
        if platform.machine() != "x86_64":
            raise UnsupportedKernelError(
                f"stacks are walked on x86_64 only, not on {platform.machine()}; leave profiles out: metrics work here"
            )
        types = [t.every(1_000_000_000 // cpu_hz) if t.name == CPU.name else t for t in types]
        self._processes = processes
        self._types = {t.name for t in types}
        self._splits_time = shows_gpu_time(types)
        self._request_tables = request_tables
        """Of who follows requests; empty where nobody does."""
        self._object = BpfObject("profile")
        self.linker = ObjectLinker(self._object, link)
        try:
            self.linker.need_loops("stacks")
            self._object.configure_map("unwind_rows", max_entries=table_rows)
            self._load(tables, types, tuple(only), stacks_per_second, table_share)
        except BaseException:
            self._object.close()
            raise
        self.loader = UnwindLoader(
            parsers,
            self._object.map("unwind_rows"),
            self._object.map("unwind_mappings"),
            self._object.map("unwind_processes"),
            cache,
            self._expect,
        )
        self._component = Component("profiles")
        self._remainders = Remainders(self._object)
        self._queue = StackQueue(parsers, self.loader, self._take_named, self._lost)
        self._lock = threading.RLock()
        self._sites = ProfileSites(parsers, self.linker, types, rules or SiteRules.here("fast", allow_single_step=True))
        self._observed: dict[ProgramId, _Observed] = {}
        self._walkable: dict[int, Process] = {}
        """By pid: the program whose mappings the loader knows."""
        self._sums = ProfileSums(types, kernel_name, request_spans or RequestSpans())
        self._gpu_time = GpuTime(kernel_name)
        self._take_busy = take_busy
        self._tensors = None
        if TENSOR_INUSE_SPACE.name in self._types:
            self._tensors = TensorMemory(self._object.map("tensor_groups"))
        self._shared = SharedTables(self._object, self._removals(), tables.kernel.states)
        self._kernel = tables.kernel
        self.complete = 0
        self.truncated: dict[int, int] = {}
        """Stacks that end early, by the number of the reason."""
        self._new_until = 0.0
        self._began_ns = 0
        self._names_of_ended_s = _NAMES_S
        self._ring = RingReader(
            self._object.map("samples"),
            self._take,
            gather_s=self._gather_s,
            used=sample_size,
            on_drained=self._queue.run,
        )
        programs = self._object.programs()
        self._ends = TracepointLinks([programs[name] for name in END_PROGRAMS])
        # What is kept of a program here is complete when the others say that it has ended.
        tables.ends.reopen()
        self.submissions = (
            TailCalls(tables.submitted, {place: programs[name] for place, name in SUBMISSION_PROGRAMS.items()})
            if self._splits_time
            else None
        )
        self._waits = GPU_WAIT.name in self._types
        rests = self._waits or OFF_CPU.name in self._types
        self._blocked = blocked_threads(self._object) if rests else None
        self._threads = BlockedThreads(self._object, STACKS) if shows_threads else None
        self.on_thread: Callable[[StackSample, Stack], None] | None = None
        """Is told what threads do that were asked for, or ran on a CPU."""
        cpu = CPU_OF_REQUESTS_PROGRAM if request_tables else CPU_PROGRAM
        self._cpu = CpuSampler(programs[cpu], cpu_hz) if CPU.name in self._types else None
        self._off_cpu = (
            TracepointLinks([programs[name] for name in OFF_CPU_PROGRAMS]) if OFF_CPU.name in self._types else None
        )

    def _load(
        self,
        tables: StackTables,
        types: Sequence[ProfileType],
        only: tuple[int, ...],
        stacks_per_second: int,
        table_share: float,
    ) -> None:
        self._object.set_variables(
            {
                "observe_all": 0 if only else 1,
                **pid_namespace(),
                "stacks_per_second": stacks_per_second,
                "off_cpu_min_ns": _SHORTEST_STAY_NS,
                "looks_for_captures": 1,
                "follows_requests": int(bool(self._request_tables)),
            }
        )
        for name in REQUEST_TABLES:
            if not self._object.has_map(name):
                continue
            if self._request_tables:
                self._object.share_map(name, self._request_tables[name])
            else:
                self._object.configure_map(name, max_entries=1)
        if self._request_tables:
            self._object.share_map("obi_map", self._request_tables["obi_map"])
        for name in _SHARED:
            self._object.share_map(name, getattr(tables, name))
        self._object.load(
            attach_type=lambda name: None if name in _NOT_UPROBES else self.linker.attach_type(name),
            needed=programs_for(types, follows_requests=bool(self._request_tables)),
            share=table_share,
        )

    def _removals(self) -> dict[Table, Removal]:
        """Return how the entries of programs that have ended are taken out of the tables."""
        return {
            Table.SAMPLED_THREADS: by_value(self._object.map("sampled_threads"), OWNER_AT),
            Table.PERIOD_SAMPLERS: by_key(self._object.map("period_samplers")),
            Table.TENSORS: by_key(self._object.map("tensors")),
            Table.TENSOR_GROUPS: by_value(self._object.map("tensor_groups"), OWNER_AT),
        }

    def close(self) -> None:
        """Detach and unload; idempotent."""
        self.detach_all()
        self._ends.close()
        if self._blocked is not None:
            self._blocked.close()
        if self._threads is not None:
            self._threads.close()
        self._ring.close()
        self._queue.close()
        self.loader.close()
        self._object.close()

    def attach(self, library: Library, file: File) -> None:
        """Place the programs in a library, once."""
        self._sites.attach(library, file)

    def is_ready(self, pids: Collection[int]) -> bool:
        """Say whether the first stacks of processes can be taken."""
        return self.progress(pids).is_ready

    def place_no_more(self) -> None:
        """Place no further programs, without a wait; those that are in place still take stacks."""
        self._sites.place_no_more()

    def detach(self, library: Library) -> None:
        """Take the programs out of a library that nobody uses any more."""
        self._sites.detach(library)

    def retry(self) -> None:
        """Place programs for which there were too few descriptors, or too little memory, where there is room now."""
        self._sites.retry()

    def detach_all(self) -> None:
        """Take away the probes, and leave everything else to a thread that may still use it; idempotent."""
        if self._cpu is not None:
            self._cpu.close()
        if self._off_cpu is not None:
            self._off_cpu.close()
        if self.submissions is not None:
            self.submissions.close()
        self._sites.close()

    def observe(self, pid: int) -> None:
        """Make a process's stacks walkable; again after it mapped more code."""
        program = self._processes.current(pid)
        if self._walkable.get(pid) not in (None, program):
            # It has become another program.
            self.loader.forget(pid)
            self._queue.release(pid)
        if program is not None:
            self._walkable[pid] = program
        if self.loader.process(pid) is None:
            self._new_until = time.monotonic() + _NEW_S
            self._ring.hurry()
            self._kernel.meet(pid)
        self.loader.watch(pid)

    def progress(self, pids: Collection[int]) -> Progress:
        """Say whether the first stacks of processes can be taken, and what is still being read for others."""
        alive = [pid for pid in pids if self._processes.known(pid)]
        tables = self.loader.tables
        return Progress(all(map(self.loader.is_ready, alive)), tables.waiting(), tables.reading())

    @property
    def cut_for_tables(self) -> int:
        """How many stacks were cut short because something about their process had not been read yet."""
        return sum(self.truncated.get(stop, 0) for stop in (Stop.NO_MAPPING, Stop.NO_TABLE, Stop.UNKNOWN_PROCESS))

    def _gather_s(self) -> float:
        return _GATHER_NEW_S if time.monotonic() < self._new_until else _GATHER_S

    def start(self) -> None:
        """Begin anew: what was sampled before is dropped, and what the next stack of each thread would stand for."""
        for _ in self._going_on():
            pass
        self._ring.drain()
        self._queue.clear()
        self._take_busy()
        with self._lock:
            self._remainders.begin()
            self._sums.clear()
            self._gpu_time.clear()
            self._began_ns = time.monotonic_ns()
            for observed in self._observed.values():
                observed.held.begin()
            self.complete = 0
            self.truncated.clear()

    def profiles(self, *, last: bool = False, names_s: float = _NAMES_S) -> list[Profile]:
        """Return what was sampled since the last call, one profile a process and type.

        With `last`, what the calls after the last stack of each thread add up to is there too, under a marker, and names
        that are still looked up are waited for, for so long; else their stacks are in the next profile.
        """
        with self._component:
            for record in self._going_on():
                self._take(record)
        self._ring.drain()
        if last:
            self._queue.settle(names_s)
        self._queue.rest()
        with self._lock:
            if last:
                self._add_remainders()
            for observed in self._observed.values():
                self._sums.add_held(observed.process, observed.held, self._began_ns)
            for program, stack, size_bytes in self._tensors.alive() if self._tensors is not None else ():
                owner = self._observed.get(program)
                if owner is not None and not owner.process.ended:
                    self._sums.add_tensors(owner.process, stack, size_bytes)
            for process, times in self._take_busy().items():
                with self._component:
                    self._sums.add_time(process, self._gpu_time.split(process, times))
            return self._sums.take(last=last)

    def wait_for_names(self, names_s: float) -> None:
        """Have names that are still looked up waited for, for so long, where a process has ended."""
        self._names_of_ended_s = names_s

    def finish(self, ended: Collection[Process]) -> None:
        """Take in the last of processes that have ended, and forget them; what goes wrong with one costs one."""
        if not ended:
            return
        self._ring.drain()
        self._queue.settle(self._names_of_ended_s, [p for p, o in list(self._observed.items()) if o.process in ended])
        with self._lock:
            with self._component:
                self._add_remainders(set(ended))
            # Those of which there was no stack among them.
            for program, observed in [(p, o) for p, o in self._observed.items() if o.process in ended]:
                del self._observed[program]
                with self._component:
                    self._sums.add_held(observed.process, observed.held, self._began_ns)
                    self._sums.name_launches(observed.process)
                    self._gpu_time.name(observed.process)
                    self._queue.forget(program)
            with self._component:
                self._shared.forget(programs_of(ended))
        for process in ended:
            with self._component:
                if self._processes.known(process.pid):
                    # It runs another program now.
                    self.observe(process.pid)
                else:
                    self._walkable.pop(process.pid, None)
                    self.loader.forget(process.pid)
                    self._queue.release(process.pid)

    def health(self) -> list[Health]:
        """Say how the thread that names stacks is, and what is made of them."""
        workers = self._ring.worker, *self.loader.workers
        return [*(worker.health() for worker in workers), *self._queue.health(), self._component.health()]

    def stacks(self) -> dict[str | None, int]:
        """Return how many stacks were taken, by why they were cut short; None: they are complete."""
        with self._lock:
            return {None: self.complete, **{STOPS.get(stop, STOPS[Stop.NONE]): n for stop, n in self.truncated.items()}}

    def readings(self) -> Iterator[SelfReading]:
        """Yield what was lost, and how many stacks were taken."""
        yield from loss_readings(self.losses(), "profile_")
        for cut, count in self.stacks().items():
            state = (
                {"otel_gpu.state": "complete"}
                if cut is None
                else {"otel_gpu.state": "truncated", "otel_gpu.reason": cut}
            )
            yield SelfReading(self_metrics.STACKS, count, state)

    def losses(self) -> dict[Loss, int]:
        """Return how often each thing went wrong in the kernel, since the start."""
        return read_losses(self._object.map("losses"))

    def _going_on(self) -> Iterator[bytes]:
        """Yield the stacks of threads that wait now, with how long they have since they were last asked."""
        if self._blocked is None:
            return
        for pid in {p.pid for p in self._processes if not p.ended}:
            if OFF_CPU.name in self._types:
                yield from self._blocked.off_cpu(pid, _SHORTEST_STAY_NS)
            if self._waits:
                yield from self._blocked.waits(pid)

    def _take(self, record: bytes) -> None:
        """Take in a record of the kernel's, and have its stack named."""
        sample = StackSample.read(record)
        program = sample.program
        frames: bytes | None = None
        with self._lock:
            self._of(program)
            if sample.kind not in (SampleType.FREE, SampleType.BACKWARD_DONE):
                end = SAMPLE_HEAD.size + FRAME_SIZE * sample.frames
                frames = record[SAMPLE_HEAD.size : end]
                self._note_end(sample, frames, record[end:])
        self._queue.put(program, sample, frames)

    def _take_named(self, program: ProgramId, sample: StackSample, stack: Stack) -> None:
        """Take in a sample whose stack has its names."""
        with self._lock:
            try:
                self._take_in(self._of(program), sample, stack)
            except Exception as e:  # noqa: BLE001 - whatever becomes of the stack, what it stands for is in the total
                self._component.note(e)
                self._remainders.lost(sample)

    def _expect(self, pid: int, python: PythonProcess) -> None:
        """Be ready for the stacks of a process whose Python can be followed."""
        self._queue.expect(pid, python)

    def _lost(self, sample: StackSample) -> None:
        with self._lock:
            self._remainders.lost(sample)

    def ask_threads(self, pid: int, names_s: float) -> None:
        """Tell `on_thread` what the threads of a process do now, and what ran on CPUs since; names are waited for, for so long."""
        if self._threads is not None:
            for record in self._threads.threads(pid):
                self._take(record)
        self._ring.drain()
        self._queue.settle(names_s)

    def _take_in(self, observed: _Observed, sample: StackSample, stack: Stack) -> None:
        if self.on_thread is not None and sample.kind in (SampleType.THREAD, SampleType.CPU):
            self.on_thread(sample, stack)
        if sample.kind == SampleType.THREAD:
            return
        match sample.kind:
            case SampleType.FREE:
                observed.held.freed(sample.subject, sample.when_ns)
                return
            case SampleType.BACKWARD_DONE:
                observed.callers.left(sample.tid)
                return
        if sample.kind == SampleType.BACKWARD:
            observed.callers.entered(sample.tid, stack)
            return
        # What ends with a call may have begun before it: an engine's thread was idle for nobody.
        if sample.kind != SampleType.OFF_CPU:
            stack = observed.callers.joined(sample.tid, stack)
        if sample.kind == SampleType.TENSOR and self._tensors is not None:
            self._tensors.charge(sample.subject, stack)
        if sample.kind == SampleType.SUBMISSION:
            self._gpu_time.add(observed.process, sample, stack)
            return
        self._sums.add(observed.process, observed.held, sample, stack)

    def _note_end(self, sample: StackSample, frames: bytes, ahead: bytes) -> None:
        """Count a stack, and have what it ended for want of read."""
        if sample.stop == Stop.OUTERMOST:
            self.complete += 1
        else:
            self.truncated[sample.stop] = self.truncated.get(sample.stop, 0) + 1
        if sample.stop == Stop.NO_MAPPING:
            self.loader.look_again(sample.tgid)
        elif sample.stop == Stop.NO_TABLE and len(frames) >= FRAME_SIZE:
            asked_for = frames[-FRAME_SIZE:] + ahead
            addresses = [
                int.from_bytes(asked_for[at : at + 8], "little") for at in range(0, len(asked_for), FRAME_SIZE)
            ]
            if self.loader.need(sample.tgid, addresses):
                # What is on its way now shows what is needed next.
                self._new_until = max(self._new_until, time.monotonic() + _TABLES_COME_S)

    def _add_remainders(self, ended: Collection[Process] | None = None) -> None:
        """Count what no stack stands for yet, and count it once: of programs that have ended, or of all."""
        remainders = self._remainders
        taken = remainders.take() if ended is None else remainders.take_of(programs_of(ended))
        for program, kind, device, value, calls in taken:
            # Also of a program of which no stack has come.
            process = self._of(program).process
            if kind == SampleType.SUBMISSION:
                self._gpu_time.add_remainder(process, device, calls)
            else:
                self._sums.add_remainder(process, kind, value)

    def _of(self, program: ProgramId) -> _Observed:
        observed = self._observed.get(program)
        if observed is None:
            observed = self._observed[program] = _Observed(self._processes.owner(program))
        return observed
