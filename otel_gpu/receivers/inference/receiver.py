"""Which requests did programs serve, and what did the GPU do for each? Followed in the kernel, told when they are over."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from ...bpf.abi.programs import OWNER_AT, PROGRAM_KEY, Table
from ...bpf.abi.requests import GPU_TOTALS, NO_OWNER_KEY, REQUEST, REQUEST_CALLBACK, REQUEST_HTTP2, NoOwner
from ...bpf.abi.requests import Ending as RequestEnding
from ...bpf.features import probe, tells_of_socket_messages
from ...bpf.link_mode import LinkMode
from ...bpf.linker import ObjectLinker
from ...bpf.object import BpfObject
from ...bpf.pid_namespace import pid_namespace
from ...bpf.ringbuf import RingReader
from ...bpf.run_once import run_once
from ...bpf.tracepoints import TracepointLinks
from ...components import LibraryReceiver
from ...components.counting.owners import Removal, are_of, by_key, by_value, programs_of
from ...components.counting.programs import SharedTables
from ...components.counting.request_spans import RequestSpans, WorkOwner
from ...components.counting.shared import RequestTables
from ...discovery.libraries import Library
from ...discovery.processes import Process, ProcessTable
from ...discovery.program_id import ProgramId
from ...errors import UnsupportedKernelError
from ...probes.sites import SiteRules
from ...probes.table import TABLES, function_number
from ...runtime.supervision import Component, Health, Worker
from ...sandbox.files import File, MappedFile
from ...sandbox.parsers import Parsers
from ...signals import self_metrics
from ...signals.metrics import Measurement, SelfReading, attributes
from ...signals.profiles import SpanLink
from ...signals.spans import Span
from . import metrics
from .assembly import Assembly
from .callbacks import callback_of
from .engines import ENGINE_RUN_HERE, ENGINE_TRACEPOINTS, Engines, Told, message_seeds
from .followed_table import FollowedTable
from .following import FollowedPrograms
from .frames import Frames
from .own_spans import OwnSpans
from .records import heads_of, read_request, seen
from .server_spans import SpanLimits, span_for_work, spans_of
from .serving_metrics import ServingMetrics
from .stack_owners import StackOwners

_log = logging.getLogger(__name__)

TRACEPOINTS = (
    "socket_received",
    "socket_sent",
    "socket_changed",
    "thread_begins",
    "request_thread_ends",
    *ENGINE_TRACEPOINTS,
)
"""Programs that run for all processes, and see at once that one is not followed."""
_RUN_HERE = ("finish_requests", "cut_request", "end_streams", "release_entries", "mark_followed", *ENGINE_RUN_HERE)
_BEHIND = ("channel_received",)
"""Programs that go on where others end."""
_NOT_UPROBES = frozenset({*TRACEPOINTS, *_BEHIND, *_RUN_HERE})

_STEP_S = 0.1
_LINGER_NS = 300_000_000
"""So long after its end a request's own task may go on, and what it does is still the request's."""
_GRACE_NS = 50_000_000
"""So long does what looks at a request take to add to it, on a host that is as busy as can be."""
_MAX_SPANS = 100_000
"""That wait to be taken; what is beyond is counted and left out."""
_LAST_S = 2.0
_NOBODY = ProgramId(0, 0)


class InferenceReceiver(LibraryReceiver):
    """Follows the requests of GPU programs."""

    def __init__(
        self,
        processes: ProcessTable,
        parsers: Parsers,
        tables: RequestTables,
        *,
        is_chosen: Callable[[int], bool] = lambda _pid: True,
        rules: SiteRules,
        link: LinkMode = "auto",
        limits: SpanLimits | None = None,
        table_share: float = 1.0,
        request_spans: RequestSpans | None = None,
        follows_callbacks: bool = True,
    ) -> None:
        """Load the programs; UnsupportedKernelError below kernel 6.3."""
        if not probe().bpf_loop or not tells_of_socket_messages():
            raise UnsupportedKernelError(
                "this kernel does not tell of messages on sockets (sock_recv_length); run 6.3 or later, or leave traces out"
            )
        self._processes = processes
        self._is_chosen = is_chosen
        self._limits = limits or SpanLimits()
        self._kernel = tables.kernel
        self._object = BpfObject("inference")
        self.linker = ObjectLinker(self._object, link)
        try:
            self.linker.need_loops("requests")
            self._object.set_variables({"follows_requests": 1, **message_seeds(), **pid_namespace()})
            for name, table in tables.maps.items():
                self._object.share_map(name, table)
            self._object.load(
                attach_type=lambda name: None if name in _NOT_UPROBES else self.linker.attach_type(name),
                share=table_share,
            )
            programs = self._object.programs()
            self._finish = programs["finish_requests"]
            self._cut = programs["cut_request"]
            self._end_streams = programs["end_streams"]
            self._frames = Frames()
            self.engines = Engines(
                self._object, self.linker, parsers, processes, rules, self._wall, self.observe, self._frames.parent
            )
            self._shared = SharedTables(self._object, self._removals(), tables.kernel.states)
            self._tracepoints = TracepointLinks([programs[name] for name in TRACEPOINTS])
        except BaseException:
            self._object.close()
            raise
        self._component = Component("inference")
        self._closed = False
        self._finishing = threading.Lock()
        """Held while requests leave the kernel's table: each is told once."""
        self._lock = threading.RLock()
        self._assembly = Assembly()
        self._serving = ServingMetrics()
        self._spans: list[Span] = []
        self.spans_dropped = 0
        """Spans that found no room."""
        self._unowned: dict[tuple[ProgramId, int], int] = {}
        """Launches without an owner that were told so far."""
        self._gone: set[ProgramId] = set()
        """Programs that have ended, whose counts are read once more."""
        self._more_unowned: dict[tuple[ProgramId, int], int] = {}
        """What the kernel left to the agent to count."""
        self._copies = dict(_copying_functions())
        self._wall_ns = 0
        self._release_at = 0.0
        self.own_spans = OwnSpans(
            parsers, self._object.map("span_sources"), self._object.map("obi_map"), tables.kernel.running
        )
        self.followed = FollowedPrograms(
            parsers,
            self.linker,
            tables.kernel,
            FollowedTable(self._object.map("followed"), programs["mark_followed"]),
            self._object.map("waiting_loops"),
            rules,
            self._was_there,
            self.own_spans.observe,
            follows_callbacks=follows_callbacks,
        )
        self._ring = RingReader(self._object.map("told_requests"), self._take, on_drained=self._release_soon)
        self._stack_owners = StackOwners(
            self._object.map("requests"), self._object.map("decided_holders"), self.engines
        )
        if request_spans is not None:
            request_spans.answer_with(self._spans_of_stacks)
        self._frame_ring = RingReader(self._object.map("frames"), self._take_frame)
        self._worker = Worker("requests finished", self._step)
        self._worker.start()

    def _removals(self) -> dict[Table, Removal]:
        """Return how the entries of programs that have ended are taken out of the tables."""
        return {
            Table.CONNECTIONS: by_value(self._object.map("connections"), 0),
            Table.REQUEST_THREADS: by_value(self._object.map("request_threads"), OWNER_AT),
            Table.PYTHON_CONTEXTS: by_key(self._object.map("python_contexts")),
            Table.QUEUE_ITEMS: by_key(self._object.map("queue_items")),
            Table.TLS_SESSIONS: by_key(self._object.map("tls_sessions")),
            Table.HTTP2_CONNECTIONS: by_value(self._object.map("http2_connections"), 0),
            Table.EXCHANGES: by_value(self._object.map("exchanges"), 0),
            **self.engines.removals(),
        }

    def close(self) -> None:
        """Detach and unload; idempotent."""
        self.detach_all()
        self._worker.stop(_LAST_S)
        self._ring.close()
        self._frame_ring.close()
        self.engines.close()
        self._object.close()

    def attach(self, library: Library, file: File) -> int | None:
        """Follow the requests of a process that has mapped a driver, or see the messages that it sends and receives."""
        self.engines.attach(library, file)
        if isinstance(file, MappedFile):
            self.observe(file.pid)
        return None

    def detach(self, library: Library) -> None:
        """Take the programs that see messages out of a library that nobody uses any more."""
        self.engines.detach(library)

    def retry(self) -> None:
        """Place programs for which there was no room, where there is some now."""
        self.engines.retry()

    def settle(self, _timeout_s: float) -> None:
        """Cut the requests that go on, as the agent ends."""
        self._cut_all()

    def observe(self, pid: int) -> None:
        """Follow the requests of a process, or look at it again after it mapped more code."""
        if self._is_chosen(pid):
            self.followed.observe(pid)
            if self.followed.is_followed(pid):
                self.own_spans.observe(pid)

    def place_no_more(self) -> None:
        """Place no further programs, without a wait; those that are in place go on."""
        self.followed.place_no_more()
        self.engines.place_no_more()

    def detach_all(self) -> None:
        """Take away the probes, and leave everything else to a thread that may still use it; idempotent."""
        self._closed = True
        self._tracepoints.close()
        self.engines.detach_all()
        self.followed.close()
        self.own_spans.close()

    def spans(self, *, last: bool = False) -> list[Span]:
        """Return the spans of requests that were over since the last call; with `last`, the others too, which are cut."""
        if last:
            self._cut_all()
        self._ring.drain()
        self._release()
        with self._lock:
            taken, self._spans = self._spans, []
        return taken

    def _cut_all(self) -> None:
        """Cut the requests that go on, as the agent ends, and wait until all that are over are told."""
        ids, values = self._object.map("requests").read("<u8", REQUEST)
        for number, is_over in zip(ids.tolist(), values["ended_ns"].tolist(), strict=True):
            if not is_over:
                run_once(self._cut, number)
        deadline = time.monotonic() + _LAST_S
        while time.monotonic() < deadline and not self._closed:
            self._run_finish(time.monotonic_ns())
            self._ring.drain()
            if not len(self._object.map("requests").read("<u8", REQUEST)[0]):
                break
            time.sleep(_GRACE_NS / 1e9)
        self._release(last=True)

    def collect(self) -> list[Measurement]:
        """Return what was measured since the last call."""
        self._ring.drain()
        self._release()
        with self._lock:
            return [*self._serving.collect(), *self._unattributed()]

    def finish(self, ended: Collection[Process]) -> None:
        """Take in the last of processes that have ended, and forget them."""
        if not ended:
            return
        programs = programs_of(ended)
        self._ring.drain()
        self._release()
        with self._component:
            self._take_left(programs)
        with self._component:
            self._shared.forget(programs)
            for program in programs:
                for name in ("going_on", "arrived_calls"):
                    self._object.map(name).delete(np.array([program], PROGRAM_KEY).tobytes())
        for process in ended:
            self.followed.forget(process.program)
            self.own_spans.forget(process.program)
            with self._lock, self._component:
                self._serving.forget(process.resource)
                self._assembly.forget(process.program)

    def readings(self) -> Iterator[SelfReading]:
        """Yield what was left out, and how full the tables are."""
        yield SelfReading(self_metrics.EVENTS_LOST, self.spans_dropped, {"otel_gpu.event": "spans_dropped"})
        yield SelfReading(self_metrics.EVENTS_LOST, self._frames.lost, {"otel_gpu.event": "header_blocks"})
        for name, (entries, capacity) in self.fill().items():
            yield SelfReading(self_metrics.MAP_ENTRIES, entries, {"bpf.map.name": name})
            yield SelfReading(self_metrics.MAP_CAPACITY, capacity, {"bpf.map.name": name})
        for reason, count in self.followed.refused().items():
            yield SelfReading(self_metrics.PROBES, count, {"otel_gpu.state": "failed", "error.type": reason})

    def health(self) -> list[Health]:
        """Say how the threads are that read what the kernel tells."""
        workers = [
            self._ring.worker,
            self._frame_ring.worker,
            self._worker,
            *self.followed.workers,
            *self.own_spans.workers,
        ]
        return [*(w.health() for w in workers), *self.engines.health(), self._component.health()]

    def fill(self) -> dict[str, tuple[int, int]]:
        """Return entries and capacity of the tables."""
        used = [state.used for state in self._kernel.states().values()]
        tables = [Table.REQUESTS, *self._removals()]
        return {t.name.lower(): (sum(u[t] for u in used), self._object.map(t.name.lower()).max_entries) for t in tables}

    def _was_there(self, pid: int) -> bool:
        """Tell whether a program may have worked for requests before it could be followed."""
        process = self._processes.current(pid)
        return process is None or process.late

    def _step(self) -> float:
        self._run_finish(time.monotonic_ns() - _LINGER_NS)
        self.engines.leave_strangers()
        return _STEP_S

    def _run_finish(self, ended_before_ns: int) -> None:
        with self._finishing:
            run_once(self._end_streams, 0)
            run_once(self._finish, max(ended_before_ns, 0), _GRACE_NS)

    def _wall(self, monotonic_ns: int) -> int:
        return self._wall_ns + monotonic_ns

    def _take(self, record: bytes) -> None:
        """Take in a request that the kernel tells of."""
        self.engines.finished(read_request(record))

    def _take_frame(self, piece: bytes) -> None:
        """Take in a piece of a header block."""
        with self._lock:
            self._frames.take(piece)

    def _release_soon(self) -> None:
        if time.monotonic() >= self._release_at:
            self._release()

    def _release(self, *, last: bool = False) -> None:
        """Make spans of the requests that no engine works for any more, and of the engines' steps."""
        self._frame_ring.drain()
        with self._lock, self._component:
            self._release_at = time.monotonic() + _STEP_S
            self._wall_ns = time.time_ns() - time.monotonic_ns()
            told, spans = self.engines.collect(last=last)
            self._keep(spans)
            for one in told:
                self._take_request(one)

    def _keep(self, spans: Sequence[Span]) -> bool:
        """Have spans sent; False where they find no room."""
        if len(self._spans) + len(spans) > _MAX_SPANS:
            self.spans_dropped += len(spans)
            return False
        self._spans += spans
        return True

    def _take_request(self, told: Told) -> None:
        request = told.request
        process = self._processes.owner(_program_of(request))
        with self._lock:
            self._wall_ns = time.time_ns() - time.monotonic_ns()
            what = told.of(seen(request, process, self._wall, self._copies))
            if request["flags"] & REQUEST_CALLBACK:
                made = self._assembly.of_callback(what, callback_of(request, *heads_of(request)))
            elif request["flags"] & REQUEST_HTTP2:
                exchange = self._frames.exchange(int(request["id"]), what, self._wall)
                made = self._assembly.of_http2(what, exchange)
            else:
                made = self._assembly.of_http1(what, *heads_of(request))
            spans = spans_of(made, self._limits)
            # Nobody is led to a span that is not sent.
            is_sent = self._keep(spans) and bool(spans)
            self._serving.add(made, spans[0].context if is_sent else None)
            if request["stacks"]:
                self._stack_owners.tell(int(request["id"]), span_for_work(made, spans) if is_sent else None)

    def _spans_of_stacks(self, owners: Collection[WorkOwner]) -> Mapping[WorkOwner, SpanLink | None]:
        going_on = self._stack_owners.going_on(owners)
        self._ring.drain()
        with self._lock:
            return self._stack_owners.find(owners, going_on)

    def _take_left(self, programs: set[ProgramId]) -> None:
        """Take in requests of programs that have ended, which nobody adds to any more."""
        table = self._object.map("requests")
        with self._finishing:
            ids, values = table.read("<u8", REQUEST)
            mine = are_of(programs, values)
            taken = table.delete_many(ids[mine].view(np.dtype((np.void, 8))))
        for request in values[mine].copy():
            if not request["ended_ns"]:
                request["ended_ns"] = time.monotonic_ns()
                request["ending"] = RequestEnding.CLOSED
            key = _program_of(request), int(NoOwner.UNDECIDED)
            with self._lock:
                self._more_unowned[key] = self._more_unowned.get(key, 0) + int(request["held"]["launches"])
            self.engines.finished(request)
        self._release()
        for told in self.engines.leave(programs):
            self._take_request(told)
        with self._lock:
            self._frames.forget(programs)
        # What each had is forgotten with it.
        self._shared.release_entries(Table.REQUESTS, _NOBODY, taken)
        with self._lock:
            self._gone |= programs

    def _unattributed(self) -> list[Measurement]:
        """Return the launches since the last call that belong to no request."""
        keys, values = self._object.map("no_owners").read(NO_OWNER_KEY, GPU_TOTALS)
        found = []
        grown, self._more_unowned = self._more_unowned, {}
        for key, launches in zip(keys.tolist(), values["launches"].tolist(), strict=True):
            tgid, exec_id, reason, _ = key
            at = ProgramId(tgid, exec_id), reason
            if more := launches - self._unowned.get(at, 0):
                grown[at] = grown.get(at, 0) + more
                self._unowned[at] = launches
        gone, self._gone = self._gone, set()
        if gone:
            self._object.map("no_owners").delete_many(keys[are_of(gone, keys)].view(np.dtype((np.void, keys.itemsize))))
            self._unowned = {at: n for at, n in self._unowned.items() if at[0] not in gone}
        for (program, why), launches in self.engines.take_unowned().items():
            grown[program, int(why)] = grown.get((program, int(why)), 0) + launches
        for (program, reason), launches in grown.items():
            if launches:
                attrs = attributes({"otel_gpu.reason": NoOwner(reason).name.lower()})
                owner = self._processes.owner(program)
                found.append(Measurement(owner.resource, metrics.UNATTRIBUTED_LAUNCHES, attrs, launches))
        return found


def _program_of(request: np.void) -> ProgramId:
    return ProgramId(int(request["tgid"]), int(request["exec_id"]))


def _copying_functions() -> Iterable[tuple[int, bool]]:
    for hook in itertools.chain.from_iterable(TABLES.values()):
        yield function_number(hook), hook.program.startswith("copy")
