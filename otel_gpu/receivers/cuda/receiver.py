"""What do programs ask of the CUDA driver, or of HIP? Probes on their functions, counted in the kernel."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from ...bpf.abi.programs import OWNER_AT, Loss, Table
from ...bpf.ringbuf import RingReader
from ...components import LibraryReceiver
from ...components.counting.device_time import DeviceTime
from ...components.counting.owners import Removal, by_key, by_value, of_trie, programs_of
from ...components.counting.programs import Programs, SharedTables
from ...components.counting.shared import REQUEST_MAPS, Counting, RequestTables, StackTables
from ...discovery import drivers
from ...discovery.libraries import Library, LibraryKind
from ...discovery.processes import Began, Process, ProcessTable
from ...probes.attach import PlannedProbe
from ...probes.libraries import ProbedLibraries
from ...probes.planning import PlanRequest
from ...probes.sites import Policy, SiteRules
from ...probes.table import TABLES
from ...runtime.supervision import Component, Health
from ...sandbox.files import File, MappedFile
from ...sandbox.parsers import Parsers
from ...signals import self_metrics
from ...signals.metrics import Measurement, SelfReading, attributes
from ..hip import rows as hip
from ..hip.devices import HipDeviceTable
from ..losses import loss_readings, read_losses
from .announced import Announced
from .busy import BusyDelta, BusyReader, BusyTimes
from .dead_rows import DeadRows
from .error_types import ErrorTypes
from .events import CudaEvents
from .kernel_handles import handle_of
from .kernel_names.kernels import KernelTable
from .kernel_names.resolver import KernelNameResolver
from .live_allocations import LiveAllocations, ReleasedMemory
from .loading import CudaPrograms
from .pending_rows import PendingRows
from .placements import Placements
from .program_totals import ProgramLoss, ProgramTotals
from .ranges import Ranges
from .record_ways import RecordWays
from .rows import RowDelta, RowReader
from .sums import CudaSums

_log = logging.getLogger(__name__)

_KEYED_BY_PROGRAM = (
    Table.LIVE,
    Table.MAPPED,
    Table.BUSY,
    Table.PERIOD_KINDS,
    Table.RECORDED,
    Table.CAPTURING,
    Table.CAPTURED_KERNELS,
    Table.GRAPHS,
    Table.CONTEXTS,
    Table.PRIMARIES,
    Table.KERNELS,
    Table.RANGES,
)
_SHARED = ("capturing", "busy", "threads", "submitted", "programs", "used_by_all", "events", "targets")
_FOLDED = "rows_folded"
_TOO_OLD = "needs bpf_loop, of kernel 5.17"
_NAMES_S, _NAMES_OF_ENDED_S, _LAST_NAMES_S = 0.25, 3.0, 5.0
"""How long a read waits for the names of kernels that just turned up; when programs have ended; at the agent's end."""


class CudaReceiver(LibraryReceiver, Counting):
    """Attaches to CUDA drivers and HIP runtimes, and reads what the kernel counted."""

    def __init__(
        self,
        processes: ProcessTable,
        parsers: Parsers,
        programs: CudaPrograms,
        *,
        policy: Policy = "fast",
        allow_single_step: bool = True,
        libraries: Sequence[str] = (),
    ) -> None:
        """Take the loaded programs, which are closed here; nothing is placed before `attach`.

        `libraries` are drivers to attach to before any process maps them.
        """
        self._processes = processes
        self._parsers = parsers
        self._drivers = libraries
        self.rules = SiteRules.here(policy, allow_single_step=allow_single_step)
        """Where probes may go."""
        self.link = programs.link
        """How they are placed."""
        self._loaded = programs
        self._object = programs.object
        self._placements = Placements(self._object.map("placed"))
        self._libraries = ProbedLibraries(
            parsers, programs.linker, self._request, left_out=self._without_loops, placing=self._placing
        )
        self._ways = RecordWays(self._object.map("record_ways"))
        self._rows = RowReader(self._object.map("rows"))
        self._overflow = RowReader(self._object.map("overflow"))
        self._busy = BusyReader(*map(self._object.map, ("busy", "period_kinds", "periods_since")))
        self._times = BusyTimes()
        self._programs = Programs(self._object)
        self._totals = ProgramTotals(self._programs)
        self._shared = SharedTables(self._object, self._removals(), self._programs.states)
        self._allocations = LiveAllocations(
            self._object.map("live"),
            Ranges(self._object.map("pinned"), self._object.map("ranges")),
            self._shared.release_entries,
            partial(self._programs.entries, Table.LIVE),
        )
        self.kernels = KernelTable()
        self._resolver = KernelNameResolver(
            self.kernels,
            parsers,
            runs=processes.runs,
            mapped_before=processes.mapped_before.of,
            on_paths=self._ways.believe,
        )
        self._events = CudaEvents(self.kernels, self._resolver, self._allocations, self._announced)
        self._errors = ErrorTypes()
        release_entries = partial(self._shared.release_entries, Table.ROWS)
        self._dead = DeadRows(self._rows, self._object.map("graphs"), self._object.map("kernels"), release_entries)
        processes.ask(self._programs)
        self._ring = RingReader(self._object.map("events"), self._events.handle, on_drained=self._allocations.sweep)
        self._pending_rows = PendingRows(self._events.awaits_name)
        self._waits_for_names = True
        self._unsorted: list[RowDelta] = []
        self._uncounted: list[RowDelta] = []
        self._losses: list[ProgramLoss] = []
        self._rows_lost = 0
        self._folded = 0
        self._component = Component("cuda")
        self._before_forgetting: list[Callable[[Collection[Process]], None]] = []
        self.hip_devices = HipDeviceTable(processes, parsers)
        """Which GPUs of AMD's are the observed processes' devices."""

    def _removals(self) -> dict[Table, Removal]:
        """Return how the entries of programs that have ended are taken out of the tables."""
        taken_by = {table: by_key(self._object.map(table.name.lower())) for table in _KEYED_BY_PROGRAM}
        return {
            **taken_by,
            Table.ROWS: self._rows.forget,
            Table.OVERFLOW: self._overflow.forget,
            Table.THREADS: by_value(self._object.map("threads"), OWNER_AT),
            Table.PINNED: of_trie(self._object.map("pinned")),
        }

    def _announced(self, exec_id: int, began: Began, said: Announced) -> None:
        late = began.start_ns <= self._placements.last_ns
        self._processes.announced(exec_id, began, said.info, is_whole=said.is_whole, late=late)

    def close(self) -> None:
        """Detach from everything and unload; idempotent."""
        self.detach_all()
        self._ring.close()
        self._resolver.close()
        self._loaded.close()

    def detach_all(self) -> None:
        """Take away the probes, and leave everything else to a thread that may still use it; idempotent."""
        self._libraries.close()

    def installed(self) -> Iterator[tuple[Library, File, str]]:
        """Yield the drivers of this host: what attaches to them now need not be told in time of who maps them."""
        for library, file in drivers.installed(self._parsers, self._drivers):
            yield library, file, os.fsdecode(file.path)

    def attach(self, library: Library, file: File) -> int | None:
        """Place the probes in a library, once, and return since when they are there; None for libraries without any."""
        process = self._processes.current(file.pid) if isinstance(file, MappedFile) else None
        if process is not None and library.kind is LibraryKind.HIP:
            self._resolver.expect(process.program)
        if library.kind is LibraryKind.DRIVER:
            # Beside the search for places, so that its first launches have names and its probes do not wait.
            self._resolver.look_up_driver(library.id, file)
        attached = self._libraries.attach(library, file)
        if process is not None:
            self.hip_devices.observe(process)
        return None if attached is None else attached.placed_ns

    def place_no_more(self) -> None:
        """Place no further probes, without a wait; those that are in place still count."""
        self._libraries.place_no_more()

    def detach(self, library: Library) -> None:
        """Take the probes out of a library that nobody uses any more."""
        self._libraries.detach(library)
        self._ways.remove(library.id)

    @contextmanager
    def _placing(self, library: Library) -> Iterator[int]:
        """Yield a number for a library whose probes are placed now."""
        with self._placements.placing() as number:
            self._ways.place(number, library.id)
            yield number

    def retry(self) -> None:
        """Place probes for which there were too few descriptors, or too little memory, where there is room now."""
        self._libraries.retry()

    def _request(self, library: Library) -> PlanRequest | None:
        if library.kind not in TABLES:
            return None
        return PlanRequest("counts", self.rules, library.kind, self._loaded.counted)

    def _without_loops(self, probe: PlannedProbe) -> PlannedProbe:
        return probe.left_out(_TOO_OLD) if probe.program in self._loaded.left_out else probe

    @property
    def tables(self) -> StackTables:
        """What programs of another object may use."""
        maps = {name: self._object.map(name) for name in _SHARED}
        return StackTables(**maps, kernel=self._programs, ends=self._loaded.ends)

    @property
    def request_tables(self) -> RequestTables:
        """What programs that follow requests share with those that count."""
        maps = {name: self._object.map(name) for name in REQUEST_MAPS}
        return RequestTables(maps, self._programs)

    def device_uuids(self, process: Process) -> Mapping[int, str]:
        """Return what a process asked the driver of its devices: UUIDs in hexadecimal digits, by ordinal."""
        return self._events.device_uuids(process)

    def kernel_name(self, process: Process, handle: int) -> str:
        """Return a kernel's name, or its handle where the name is not known."""
        return self._name(process, self._events.key_of(process, handle))

    def _name(self, process: Process, key: int) -> str:
        try:
            return self._events.kernel_name(process, key)
        except Exception as e:  # noqa: BLE001 - a name that cannot be had must not cost what was launched
            self._component.note(e)
            return f"unknown+{handle_of(key):#x}"

    def before_forgetting(self, tell: Callable[[Collection[Process]], None]) -> None:
        """Tell whoever else knows of processes of those that have ended, while their kernels still have names."""
        self._before_forgetting.append(tell)

    def collect(self, names_s: float = _NAMES_S) -> list[Measurement]:
        """Return what was counted since the last call; what is kept of ended processes is dropped.

        Names of kernels that just turned up are waited for, for `names_s`.
        """
        # Programs that showed themselves and ended are known as such then.
        self._ring.drain()
        ended = self._processes.ended()
        if ended and self._waits_for_names:
            self._resolver.settle(_NAMES_OF_ENDED_S, programs_of(ended))
        for tell in self._before_forgetting:
            with self._component:
                tell(ended)
        # What was read is kept until it has been counted, whatever happens in between.
        self._unsorted += self._rows.read()
        self._unsorted += self._overflow.read()
        self._read_programs()
        # Events after rows: what a row counts was made known before it was counted.
        self._ring.drain()
        if self._waits_for_names:
            self._resolver.settle(names_s)
        naming = (self._name, self._events.key_of, self._events.graph_contents, self._events.may_launch_on_device)
        sums, of_hip = CudaSums(*naming, self._errors.of_cuda), CudaSums(*naming, self._errors.of_hip)

        def count(row: RowDelta) -> None:
            owner = self._processes.owner(row.program)
            if row.is_hip:
                of_hip.add(owner, replace(row, device=hip.device_of(row.device, owner)))
            else:
                sums.add(owner, row)

        early: list[BusyDelta] = []

        def add_time(grown: BusyDelta, *, is_last: bool = False) -> None:
            if not is_last and self._processes.awaits(grown.program):
                early.append(grown)
                return
            owner = self._processes.owner(grown.program)
            self._times.grown(owner, grown)
            sums.busy(owner, grown)

        def end_memory(released: ReleasedMemory) -> None:
            owner = self._processes.owner(released.program)
            if released.is_hip:
                of_hip.ended(owner, hip.device_of(released.device, owner), released.type, released.size)
            else:
                sums.ended(owner, released.device, released.type, released.size)

        with self._events.lock:
            self._uncounted += self._pending_rows.ready(self._unsorted, {p.pid for p in ended})
            self._unsorted = []
            self._rows_lost += self._component.each(self._uncounted, count)
            known = programs_of(self._processes)
            self._component.each(self._busy.read(known), add_time)
            self._component.each(
                self._events.take_busy_periods(),
                lambda period: self._times.ended(self._processes.owner(period[0]), *period[1:]),
            )
            self._component.each(self._allocations.take_released(), end_memory)
        if early:
            # Of programs that began after the events were read: their announcements say who they are.
            self._ring.drain()
            self._component.each(early, partial(add_time, is_last=True))
        measured = [*sums.measurements(), *hip.measurements(of_hip.measurements()), *map(self._lost, self._losses)]
        measured += (*sums.unexpanded(), *of_hip.unexpanded())
        self._uncounted = []
        self._losses = []
        with self._component:
            self._forget(ended)
        return measured

    def _forget(self, ended: Collection[Process]) -> None:
        # Not before all is counted: the first rows of a short life may have told whose they are.
        programs = programs_of(ended)
        self._errors.forget(ended)
        self._dead.sweep()
        self._shared.forget(programs)
        self._busy.forget(programs)
        self._programs.forget(programs)
        self._totals.forget(programs)
        for program in programs:
            self._events.forget(program)

    def _read_programs(self) -> None:
        totals, losses = self._totals.read()
        self._unsorted += totals
        self._losses += losses
        for program, folded in self._rows.cardinality.take().items():
            self._losses.append(ProgramLoss(program, _FOLDED, "rows", folded))
            self._folded += folded

    def _lost(self, loss: ProgramLoss) -> Measurement:
        owner = self._processes.owner(loss.program)
        attrs = attributes({"otel_gpu.event": loss.event, "bpf.map.name": loss.table})
        return Measurement(owner.resource, self_metrics.PROCESS_EVENTS_LOST, attrs, loss.count)

    def take_busy(self) -> Mapping[Process, Mapping[int, DeviceTime]]:
        """Return what GPUs did for each process since the last call, by device, as of the last read."""
        with self._events.lock:
            return self._times.take()

    def hurry(self, timeout_s: float) -> None:
        """Have a `collect` that waits for names go on in that time; `settle` follows."""
        self._resolver.hurry(timeout_s)

    def settle(self, timeout_s: float = _LAST_NAMES_S) -> None:
        """Wait for names a last time: from now on `collect` neither waits for them nor holds anything back."""
        self._pending_rows.end()
        self._waits_for_names = False
        self._ring.drain()
        self._resolver.settle_last(timeout_s)

    def health(self) -> list[Health]:
        """Say how the thread is that reads events, and what is made of counts."""
        return [self._ring.worker.health(), self._component.health()]

    def losses(self) -> dict[Loss, int]:
        """Return how often each thing went wrong in the kernel, since the start."""
        return read_losses(self._object.map("losses"))

    def readings(self) -> Iterator[SelfReading]:
        """Yield what was lost, how full the tables are, and how many probes there are."""
        yield from loss_readings(self.losses())
        for event, count in self.gaps().items():
            yield SelfReading(self_metrics.EVENTS_LOST, count, {"otel_gpu.event": event})
        for name, (entries, capacity) in self.fill().items():
            yield SelfReading(self_metrics.MAP_ENTRIES, entries, {"bpf.map.name": name})
            yield SelfReading(self_metrics.MAP_CAPACITY, capacity, {"bpf.map.name": name})
        for state, kernels in self.unnamed().items():
            yield SelfReading(self_metrics.KERNELS_UNNAMED, kernels, {"otel_gpu.state": state})
        attached, failed = self.probes()
        yield SelfReading(self_metrics.PROBES, attached, {"otel_gpu.state": "attached"})
        for reason, count in failed.items():
            yield SelfReading(self_metrics.PROBES, count, {"otel_gpu.state": "failed", "error.type": reason})

    def gaps(self) -> dict[str, int]:
        """Return how often something was counted without all that there is to know of it, since the start."""
        return {
            "graph_nodes_unknown": self._events.unknown_graph_nodes(),
            "name_lookups_dropped": self._resolver.dropped,
            "name_files_unread": self._resolver.unread_files,
            "name_reads_failed": self._resolver.failed_reads,
            "names_cut": self._events.cut_names(),
            "names_refused": self.kernels.refused,
            "rows_not_counted": self._rows_lost,
            _FOLDED: self._folded,
        }

    def unnamed(self) -> dict[str, int]:
        """Return how many kernels have no name, by whether it is still looked for."""
        pending, unknown = self._resolver.unnamed()
        return {"pending": pending, "unknown": unknown}

    def fill(self) -> dict[str, tuple[int, int]]:
        """Return entries and capacity of the tables."""
        used = [state.used for state in self._programs.states().values()]
        names = {table: table.name.lower() for table in self._removals()}
        filled = {
            name: (sum(entries[table] for entries in used), self._object.map(name).max_entries)
            for table, name in names.items()
        }
        return {"programs": (len(used), self._object.map("programs").max_entries), **filled}

    def probes(self) -> tuple[int, dict[str, int]]:
        """Return how many probes are in place, and how many failed, by reason."""
        return self._libraries.probes()
