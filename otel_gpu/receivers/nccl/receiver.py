"""What do programs ask of NCCL, or of RCCL? Probes on its functions, counted in the kernel."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from ...bpf.abi.nccl import NCCL_COMM, NCCL_COMM_KEY
from ...bpf.abi.programs import OWNER_AT, Table
from ...bpf.ringbuf import RingReader
from ...components import LibraryReceiver
from ...components.counting.owners import Removal, by_key, by_value, programs_of
from ...components.counting.programs import Programs, SharedTables
from ...discovery.libraries import Library, LibraryKind
from ...discovery.processes import Process, ProcessTable
from ...discovery.program_id import ProgramId
from ...probes.libraries import ProbedLibraries
from ...probes.planning import PlanRequest
from ...probes.sites import SiteRules
from ...runtime.supervision import Component, Health
from ...sandbox.files import File
from ...sandbox.parsers import Parsers
from ...signals import self_metrics
from ...signals.metrics import Measurement, SelfReading, attributes
from ...signals.spans import Span
from ..losses import read_losses
from . import metrics
from .arrival_spans import span_of
from .arrivals import Arrival, Arrivals
from .loading import NcclPrograms
from .rows import NcclDelta, NcclRows
from .sums import NcclSums, comm_attributes

_log = logging.getLogger(__name__)

_MAX_SPANS = 100_000
"""That wait to be taken; beyond, the oldest are let go."""
_QUIET_NS = 1_000_000_000
"""A communicator's last arrival is told after so long without another one, if it was not."""
_UNASKED_S = 600.0
"""Where nobody has asked for spans for so long, nobody wants any."""
_OWN_LOSSES = ("nccl_", "arrivals_")
"""How those begin that no other object has."""
_DRIVERS = (LibraryKind.DRIVER, LibraryKind.HIP)
"""By which the host sees that streams are done."""
_MAX_LAST = 10_000
"""Communicators of which that is remembered."""


class NcclReceiver(LibraryReceiver):
    """Attaches to NCCL wherever it is, and reads what the kernel counted."""

    def __init__(
        self,
        processes: ProcessTable,
        parsers: Parsers,
        programs: NcclPrograms,
        kernel: Programs,
        *,
        rules: SiteRules,
    ) -> None:
        """Take the loaded programs, which are closed here; nothing is placed before `attach`."""
        self._processes = processes
        self._loaded = programs
        self._object = programs.object
        self._kernel = kernel
        self._rules = rules
        self._libraries = ProbedLibraries(parsers, programs.linker, self._request)
        self._rows = NcclRows(self._object.map("nccl_rows"))
        self._overflow = NcclRows(self._object.map("nccl_overflow"))
        self._shared = SharedTables(self._object, self._removals(), kernel.states)
        self._component = Component("nccl")
        self._lock = threading.RLock()
        self._uncounted: list[NcclDelta] = []
        self._rows_lost = 0
        self._untold: deque[Arrival] = deque()
        self._told: dict[tuple[ProgramId, int, int], int] = {}
        """The last collective whose arrival was told, by communicator and rank."""
        self._asked_s = time.monotonic()
        """When somebody took spans, last."""
        self.spans_dropped = 0
        """Spans that found no room."""
        self._arrivals = Arrivals(processes.owner, self._tell)
        self._ring = RingReader(self._object.map("nccl_arrivals"), self._take)

    def _removals(self) -> dict[Table, Removal]:
        """Return how the entries of programs that have ended are taken out of the tables."""
        return {
            Table.NCCL_ROWS: self._rows.forget,
            Table.NCCL_OVERFLOW: self._overflow.forget,
            Table.NCCL_COMMS: by_key(self._object.map("nccl_comms")),
            **{
                table: by_key(self._object.map(table.name.lower()))
                for table in (Table.NCCL_STREAMS, Table.NCCL_WORKS, Table.NCCL_RECORDED)
            },
            Table.NCCL_THREADS: by_value(self._object.map("nccl_threads"), OWNER_AT),
        }

    def close(self) -> None:
        """Detach from everything and unload; idempotent."""
        self.detach_all()
        self._ring.close()
        self._loaded.close()

    def detach_all(self) -> None:
        """Take away the probes, and leave everything else to a thread that may still use it; idempotent."""
        self._libraries.close()

    def attach(self, library: Library, file: File) -> int | None:
        """Place the probes in a file, once, and return since when they are there; None for files without NCCL."""
        attached = self._libraries.attach(library, file)
        return None if attached is None else attached.placed_ns

    def place_no_more(self) -> None:
        """Place no further probes, without a wait; those that are in place still count."""
        self._libraries.place_no_more()

    def detach(self, library: Library) -> None:
        """Take the probes out of a library that nobody uses any more."""
        self._libraries.detach(library)

    def retry(self) -> None:
        """Place probes for which there were too few descriptors, or too little memory, where there is room now."""
        self._libraries.retry()

    def _request(self, library: Library) -> PlanRequest | None:
        if library.kind in _DRIVERS:
            return PlanRequest("nccl_streams", self._rules, library.kind)
        return PlanRequest("nccl", self._rules, library.kind) if library.holds_nccl else None

    def collect(self) -> list[Measurement]:
        """Return what was counted since the last call."""
        self._ring.drain()
        keys, comms = self._object.map("nccl_comms").read(NCCL_COMM_KEY, NCCL_COMM)
        with self._lock:
            self._read_rows()
            sums = NcclSums(self._processes.owner)
            self._rows_lost += self._component.each(self._uncounted, sums.add)
            self._uncounted = []
            here = Counter(comms["comm"].tolist())
            return [
                *sums.measurements(),
                *self._sequences(keys, comms),
                *self._arrivals.collect(here, time.monotonic_ns()),
            ]

    def finish(self, ended: Collection[Process]) -> None:
        """Take in the last of processes that have ended, and forget them."""
        if not ended:
            return
        programs = programs_of(ended)
        self._ring.drain()
        with self._lock:
            # The rows are read here for the last time.
            self._read_rows()
            with self._component:
                self._shared.forget(programs)
            self._arrivals.forget(programs)
            for key in [key for key in self._told if key[0] in programs]:
                del self._told[key]

    def spans(self, *, last: bool = False) -> list[Span]:  # noqa: ARG002 - all that there are, each time
        """Return the arrivals since the last call, and calls that have not returned for a while."""
        self._ring.drain()
        with self._lock, self._component:
            self._tell_quiet()
        with self._lock:
            self._asked_s = time.monotonic()
            taken, self._untold = self._untold, deque()
        now_ns = time.monotonic_ns()
        wall_ns = time.time_ns() - now_ns
        return [span_of(one, self._processes.owner(one.program).resource, wall_ns, now_ns) for one in taken]

    def health(self) -> list[Health]:
        """Say how the thread is that reads arrivals, and what is made of counts."""
        return [self._ring.worker.health(), self._component.health()]

    def readings(self) -> Iterator[SelfReading]:
        """Yield what was lost, how full the tables are, and how many probes there are."""
        for loss, count in read_losses(self._object.map("losses")).items():
            name = loss.name.lower()
            event = name if name.startswith(_OWN_LOSSES) else f"nccl_{name}"
            yield SelfReading(self_metrics.EVENTS_LOST, count, {"otel_gpu.event": event})
        for event, count in {
            "nccl_rows_not_counted": self._rows_lost,
            "nccl_spans_dropped": self.spans_dropped,
            "nccl_arrivals_not_compared": self._arrivals.let_go,
        }.items():
            yield SelfReading(self_metrics.EVENTS_LOST, count, {"otel_gpu.event": event})
        used = [state.used for state in self._kernel.states().values()]
        for table in self._removals():
            name = table.name.lower()
            yield SelfReading(self_metrics.MAP_ENTRIES, sum(entries[table] for entries in used), {"bpf.map.name": name})
            yield SelfReading(self_metrics.MAP_CAPACITY, self._object.map(name).max_entries, {"bpf.map.name": name})

    def probes(self) -> tuple[int, dict[str, int]]:
        """Return how many probes are in place, and how many failed, by reason."""
        return self._libraries.probes()

    def _read_rows(self) -> None:
        self._uncounted += self._rows.read()
        self._uncounted += self._overflow.read()

    def _sequences(self, keys: npt.NDArray[np.void], comms: npt.NDArray[np.void]) -> Iterator[Measurement]:
        for (tgid, exec_id, _), comm, rank, ranks, sequence in zip(
            keys.tolist(), *(comms[name].tolist() for name in ("comm", "rank", "ranks", "sequence")), strict=True
        ):
            resource = self._processes.owner(ProgramId(tgid, exec_id)).resource
            attrs = attributes(comm_attributes(comm, rank, ranks))
            yield Measurement(resource, metrics.SEQUENCE, attrs, sequence)

    def _take(self, record: bytes) -> None:
        with self._lock:
            self._arrivals.take(record)

    def _tell(self, arrival: Arrival) -> None:
        """Keep an arrival, of which there will be a span."""
        if time.monotonic() - self._asked_s > _UNASKED_S:
            self._untold.clear()
            return
        if arrival.returned_ns and (len(self._told) < _MAX_LAST or _which(arrival) in self._told):
            self._told[_which(arrival)] = arrival.sequence
        self._untold.append(arrival)
        if len(self._untold) > _MAX_SPANS:
            self._untold.popleft()
            self.spans_dropped += 1

    def _tell_quiet(self) -> None:
        """Tell the last arrivals of communicators that have been quiet for a while: calls that have not returned among them."""
        keys, comms = self._object.map("nccl_comms").read(NCCL_COMM_KEY, NCCL_COMM)
        now_ns = time.monotonic_ns()
        # A group's calls have returned and are not submitted before it ends.
        held = {_which(one): one for one in self._arrivals.held()}
        quiet = np.nonzero((comms["sequence"] > 0) & (comms["entered_ns"] + _QUIET_NS < now_ns))[0]
        for at in quiet[:_MAX_LAST].tolist():
            program = ProgramId(int(keys[at]["tgid"]), int(keys[at]["exec_id"]))
            comm, said = comms[at], comms[at]["last"]
            which = program, int(comm["comm"]), int(comm["rank"])
            sequence = int(comm["sequence"])
            if self._told.get(which) == sequence:
                continue
            in_flight = int(comm["returned_ns"]) < int(comm["entered_ns"]) or (
                which in held and held[which].sequence == sequence
            )
            self._tell(
                Arrival(
                    program,
                    which[1],
                    which[2],
                    int(comm["ranks"]),
                    sequence,
                    int(comm["entered_ns"]),
                    0 if in_flight else int(comm["returned_ns"]),
                    *(int(said[name]) for name in ("count", "root", "function", "datatype", "reduction")),
                )
            )


def _which(arrival: Arrival) -> tuple[ProgramId, int, int]:
    return arrival.program, arrival.comm, arrival.rank
