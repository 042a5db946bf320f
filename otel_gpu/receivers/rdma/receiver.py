"""What do programs do with their RDMA devices? Followed in the kernel, in the processes that use libibverbs."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ...bpf.abi.programs import PROGRAM_KEY, Table
from ...bpf.abi.rdma import (
    QUEUE_PAIR,
    QUEUE_PAIR_KEY,
    RDMA_ROW,
    RDMA_ROW_KEY,
    VERBS_EVENT,
    VERBS_PROGRAM,
    WORK_RING_KEY,
    RdmaRowKind,
)
from ...bpf.features import probe
from ...bpf.link_mode import LinkMode
from ...bpf.linker import ObjectLinker
from ...bpf.object import BpfObject
from ...bpf.pid_namespace import pid_namespace
from ...bpf.records import struct_of
from ...bpf.ringbuf import RingReader
from ...components import LibraryReceiver
from ...components.counting.owners import Removal, are_of, by_key, by_value, programs_of
from ...components.counting.programs import SharedTables
from ...discovery.processes import Process, ProcessTable
from ...discovery.program_id import ProgramId
from ...errors import UnsupportedKernelError
from ...probes.sites import SiteRules
from ...runtime.supervision import Component, Health
from ...sandbox.parsers import Parsers
from ...signals import self_metrics
from ...signals.metrics import Attributes, Measurement, MetricSpec, Resource, SelfReading, attributes
from . import metrics as m
from .coverage import Connections
from .kernel_pairs import KernelPairs, levels_of_kernel
from .netlink import KernelPair, kernel_pairs
from .placing import VerbsProcesses
from .ports import PortReader
from .settings import RdmaSettings
from .shown import ShownPairs
from .sums import RTS, PairTotals, RdmaSums, RowDelta, connected, levels, program_of

if TYPE_CHECKING:
    from ...components.counting.shared import RequestTables

_log = logging.getLogger(__name__)
_VERBS_EVENT = struct_of(VERBS_EVENT)

_NOT_UPROBES = frozenset({"release_entries"})
_SHARED = ("programs", "used_by_all", "events", "losses")
_TABLES = (
    Table.QUEUE_PAIRS,
    Table.GONE_PAIRS,
    Table.WORK_RINGS,
    Table.RDMA_ROWS,
    Table.MEMORY_REGIONS,
    Table.VERBS_PROGRAMS,
    Table.COMPLETION_QUEUES,
)
_Level = tuple[ProgramId, MetricSpec, Attributes]


class RdmaReceiver(LibraryReceiver):
    """Follows the RDMA of programs, and reads the ports of this host."""

    def __init__(
        self,
        processes: ProcessTable,
        parsers: Parsers,
        tables: RequestTables,
        settings: RdmaSettings,
        host: Resource,
        *,
        is_chosen: Callable[[int], bool] = lambda _pid: True,
        rules: SiteRules,
        link: LinkMode = "auto",
        table_share: float = 1.0,
        ports: PortReader | None = None,
        ask_kernel: Callable[[], Collection[KernelPair]] = kernel_pairs,
    ) -> None:
        """Load the programs; UnsupportedKernelError below kernel 5.17."""
        if not probe().bpf_loop:
            raise UnsupportedKernelError(
                "this kernel cannot follow RDMA (bpf_loop); run 5.17 or later, or leave the receiver rdma out"
            )
        self._processes = processes
        self._settings = settings
        self._kernel = tables.kernel
        self._ports = ports or PortReader(host)
        self._ask_kernel = ask_kernel
        self._object = BpfObject("rdma")
        self.linker = ObjectLinker(self._object, link)
        try:
            self._object.set_variables({"observe_all": 1, **pid_namespace()})
            for name in _SHARED:
                self._object.share_map(name, tables.maps[name])
            self._object.load(
                attach_type=lambda name: None if name in _NOT_UPROBES else self.linker.attach_type(name),
                share=table_share,
            )
            self._shared = SharedTables(self._object, self._removals(), tables.kernel.states)
        except BaseException:
            self._object.close()
            raise
        self._component = Component("rdma")
        self._lock = threading.RLock()
        self._pairs = PairTotals()
        self._shown = ShownPairs(settings.queue_pairs)
        self._rows: dict[bytes, tuple[int, int]] = {}
        self._levels: Counter[_Level] = Counter()
        self._measured: list[Measurement] = []
        self._active: set[ProgramId] = set()
        self._covered: dict[ProgramId, str] = {}
        self.placing = VerbsProcesses(
            parsers,
            self.linker,
            tables.kernel,
            self._object.map("poll_windows"),
            rules,
            polls=settings.polls,
            everybody=settings.processes == "all",
            is_chosen=is_chosen,
        )
        """In which processes programs are placed."""
        self._ring = RingReader(self._object.map("verbs_events"), self._told)

    def _removals(self) -> dict[Table, Removal]:
        """Return how the entries of programs that have ended are taken out of the tables."""
        taken_by = {table: by_key(self._object.map(table.name.lower())) for table in _TABLES}
        return {**taken_by, Table.VERBS_CALLS: by_value(self._object.map("verbs_calls"), 0)}

    def close(self) -> None:
        """Detach and unload; idempotent."""
        self.detach_all()
        self._ring.close()
        self._object.close()

    def observe(self, pid: int) -> None:
        """Look at a process that has mapped code."""
        self.placing.observe(pid)

    def place_no_more(self) -> None:
        """Place no further programs, without a wait; those that are in place go on."""
        self.placing.place_no_more()

    def detach_all(self) -> None:
        """Take away the probes, and leave everything else to a thread that may still use it; idempotent."""
        self.placing.close()

    def collect(self) -> list[Measurement]:
        """Return what was measured since the last call."""
        self._ring.drain()
        with self._lock:
            if self._settings.ports:
                with self._component:
                    self._measured += self._ports.collect()
            live, unmet = self._take()
            self._measured += self._covers(live, unmet)
            taken, self._measured = self._measured, []
        return taken

    def finish(self, ended: Collection[Process]) -> None:
        """Take in the last of processes that have ended, and forget them."""
        programs = programs_of(ended)
        if not programs:
            return
        with self._lock, self._component:
            self._take()
            self._levels = Counter({level: n for level, n in self._levels.items() if level[0] not in programs})
            self._active -= programs
            self._shown.forget(programs)
            self._covered = {program: how for program, how in self._covered.items() if program not in programs}
            self._rows = {
                key: row
                for key, row in self._rows.items()
                if program_of(np.frombuffer(key, RDMA_ROW_KEY)[0]) not in programs
            }
        with self._component:
            self.placing.forget(programs)
            self._shared.forget(programs)

    def readings(self) -> Iterator[SelfReading]:
        """Yield how full the tables are, and how many probes there are."""
        for name, (entries, capacity) in self.fill().items():
            yield SelfReading(self_metrics.MAP_ENTRIES, entries, {"bpf.map.name": name})
            yield SelfReading(self_metrics.MAP_CAPACITY, capacity, {"bpf.map.name": name})
        placed, refused = self.placing.probes()
        for reason, count in refused.items():
            yield SelfReading(self_metrics.PROBES, count, {"otel_gpu.state": "failed", "error.type": f"rdma: {reason}"})
        yield SelfReading(self_metrics.PROBES, placed, {"otel_gpu.state": "attached", "error.type": "rdma: none"})

    def health(self) -> list[Health]:
        """Say how the threads are that place programs and read what the kernel tells."""
        return [*(w.health() for w in (self._ring.worker, *self.placing.workers)), self._component.health()]

    def fill(self) -> dict[str, tuple[int, int]]:
        """Return entries and capacity of the tables."""
        used = [state.used for state in self._kernel.states().values()]
        return {
            t.name.lower(): (sum(u[t] for u in used), self._object.map(t.name.lower()).max_entries)
            for t in (*_TABLES, Table.VERBS_CALLS)
        }

    def _told(self, record: bytes) -> None:
        kind, tgid, exec_id, _, *functions = _VERBS_EVENT.unpack_from(record)
        self.placing.told(kind, ProgramId(tgid, exec_id), tuple(functions))

    def _take(self) -> tuple[np.ndarray, list[tuple[ProgramId, KernelPair]]]:
        """Read what the kernel counted, and return the queue pairs that there are, and those that only the kernel knows."""
        # Before the tables: what the kernel knows and they do not then was made, and is, before they were looked at.
        known = self._kernel_pairs()
        live = self._object.map("queue_pairs").read(QUEUE_PAIR_KEY, QUEUE_PAIR)[1]
        gone_keys, gone = self._object.map("gone_pairs").read(WORK_RING_KEY, QUEUE_PAIR)
        live, unmet = known.complete(live, gone)
        both = np.concatenate([gone, live])
        # One that went meanwhile may be there twice: what it did in the end is where those are that are gone.
        _, first = np.unique(both["id"], return_index=True)
        pairs = both[first]
        grown = self._pairs.since(pairs)
        worked = np.flatnonzero(grown[:, :2].any(axis=1))
        self._active |= {program_of(pairs[at]["key"]) for at in worked.tolist()}
        self._shown.choose(pairs, worked)
        sums = RdmaSums(self._shown.ids, self._ports.gid)
        sums.add_pairs(pairs, grown)
        keys = self._read_rows(sums)
        self._measured += sums.measurements(self._resource)
        live = live[~np.isin(live["id"], gone["id"])]
        self._take_levels(live, unmet)
        if len(gone):
            self._remove(gone_keys, keys)
        return live, unmet

    def _read_rows(self, sums: RdmaSums) -> np.ndarray:
        keys, rows = self._object.map("rdma_rows").read(RDMA_ROW_KEY, RDMA_ROW)
        seen: dict[bytes, tuple[int, int]] = {}
        raw, size = keys.tobytes(), RDMA_ROW_KEY.itemsize
        for at, now in enumerate(rows.tolist()):
            key = raw[at * size : (at + 1) * size]
            seen[key] = now
            before = self._rows.get(key, (0, 0))
            if now != before:
                k = keys[at]
                delta = RowDelta(
                    program_of(k),
                    int(k["id"]),
                    RdmaRowKind(int(k["kind"])),
                    int(k["operation"]),
                    int(k["bucket"]),
                    now[0] - before[0],
                    now[1] - before[1],
                )
                self._component.each([delta], sums.add_row)
        self._rows = seen
        return keys

    def _kernel_pairs(self) -> KernelPairs:
        programs = {program.pid: program for program in self.placing.sees_posts()}
        if not programs:
            return KernelPairs({}, ())
        with self._component:
            return KernelPairs(programs, self._ask_kernel())
        return KernelPairs({}, ())

    def _take_levels(self, live: np.ndarray, unmet: Collection[tuple[ProgramId, KernelPair]]) -> None:
        unread = self._unread()
        windows = {p: number for p, number in self.placing.open_windows().items() if p not in unread}
        now = levels(live, self._shown.ids, windows, self._ports.gid)
        now.update(levels_of_kernel(unmet))
        for level in now.keys() | self._levels.keys():
            if delta := now[level] - self._levels[level]:
                program, spec, attrs = level
                self._measured.append(Measurement(self._resource(program), spec, attrs, delta))
        self._levels = now

    def _unread(self) -> set[ProgramId]:
        """Return the programs some of whose completions are of nobody knows what: what is under way is not known of theirs."""
        keys, values = self._object.map("verbs_programs").read(PROGRAM_KEY, VERBS_PROGRAM)
        return {program_of(keys[at]) for at in np.flatnonzero(values["unread"]).tolist()}

    def _remove(self, gone_keys: np.ndarray, row_keys: np.ndarray) -> None:
        """Take out the pairs that are gone and were read, and their rows."""
        dead = row_keys[np.isin(row_keys["id"], gone_keys["id"])]
        for name, table, keys in (
            ("rdma_rows", Table.RDMA_ROWS, dead),
            ("gone_pairs", Table.GONE_PAIRS, gone_keys),
        ):
            for program in {program_of(key) for key in keys}:
                mine = keys[are_of({program}, keys)]
                self._shared.release_entries(table, program, self._object.map(name).delete_many(mine))
        for key in dead:
            self._rows.pop(key.tobytes(), None)
        self._pairs.forget(gone_keys["id"].tolist())

    def _covers(self, live: np.ndarray, unmet: Collection[tuple[ProgramId, KernelPair]]) -> Iterator[Measurement]:
        """Yield how much is seen of each process."""
        keys, values = self._object.map("verbs_programs").read(PROGRAM_KEY, VERBS_PROGRAM)
        ready = connected(live)
        connections = Connections(
            seen=frozenset(program_of(key) for key in keys[values["polls"] > 0]) | self._active,
            direct=frozenset(program_of(key) for key in keys[values["direct"] > 0]),
            ready=frozenset(program_of(pair["key"]) for pair in ready) | {p for p, pair in unmet if pair.state == RTS},
            older=frozenset(program_of(pair["key"]) for pair in ready[ready["from_start"] == 0])
            | {p for p, pair in unmet if pair.state == RTS},
        )
        sees_posts = self.placing.sees_posts()
        for program, ratio in self.placing.take_ratios().items():
            how = connections.coverage(program, ratio, sees_posts=bool(sees_posts.get(program)))
            resource = self._resource(program)
            before = self._covered.get(program)
            if before is not None and before != how:
                yield Measurement(resource, m.COVERAGE, attributes({"rdma.probe.coverage": before}), 0)
            self._covered[program] = how
            yield Measurement(resource, m.COVERAGE, attributes({"rdma.probe.coverage": how}), 1)
            yield Measurement(resource, m.SAMPLING_RATIO, (), ratio)

    def _resource(self, program: ProgramId) -> Resource:
        return self._processes.owner(program).resource
