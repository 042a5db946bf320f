"""What did engines do for the requests of others? Messages join the two: steps become spans with links, and shares of requests.

A request is told when its response is over, and held here until every step that may have served it is told as well. What
no request was in flight for, and what nobody can tell whose it is, is nobody's: per program nothing is counted twice or lost.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection

import numpy as np
from msgspec.structs import replace

from ...bpf.abi.engines import ENGINE, ENGINE_EVENT, STEP, STRANGERS, EngineEventKind, StepState
from ...bpf.abi.programs import PROGRAM_KEY, Table
from ...bpf.abi.requests import REQUEST, REQUEST_AMBIGUOUS, REQUEST_HTTP2, NoOwner
from ...bpf.abi.requests import Ending as RequestEnding
from ...bpf.linker import ObjectLinker
from ...bpf.object import BpfObject
from ...bpf.ringbuf import RingReader
from ...bpf.run_once import run_once
from ...components.counting.owners import Removal, by_key, by_value
from ...discovery.libraries import Library, LibraryKind
from ...discovery.processes import ProcessTable
from ...discovery.program_id import ProgramId
from ...errors import ProcessGoneError
from ...probes.libraries import ProbedLibraries
from ...probes.planning import PlanRequest
from ...probes.sites import SiteRules
from ...runtime.supervision import Health
from ...sandbox.files import File
from ...sandbox.parsers import Parsers
from ...signals.spans import Span, SpanContext
from ...signals.structs import Frozen
from .assembly import Seen
from .http1 import parse_request
from .records import heads_of, own_span_of, totals_of
from .request import Attribution, GpuTotals
from .step_spans import step_span
from .steps import Flights, Linked, Step, added, split
from .trace_context import child_of, parent_of

_log = logging.getLogger(__name__)

ENGINE_MAPS = ("engines", "engine_events", "steps")
"""What the programs which follow messages share with those that count."""
ENGINE_TRACEPOINTS = ("step_thread_ends",)
ENGINE_RUN_HERE = ("tell_steps", "drop_messages", "drop_streams", "leave_strangers")

_IDLE_NS = 200_000_000
"""A thread that did nothing for so long since the host saw its step done has ended it."""
_LONG_NS = 10_000_000_000
"""A step in which the host has seen nothing done for so long is told as far as it has come."""
_ABANDONED_NS = 1_000_000_000
"""So long may an engine go on with a request whose client has gone, until it is told."""
_QUIET_NS = 1_000_000_000
"""An engine that has had no request for so long, and has done nothing, is done with what strangers asked it for."""
_COLD_NS = 120_000_000_000
"""So long may an engine that was there before the agent, and is never quiet, be at work for requests that it got before."""
_DEADLINE_NS = 15_000_000_000
"""How long a request waits for a step that goes on."""
_STALE_NS = 60_000_000_000
_SWEEP_NS = 10_000_000_000
_MOST_STEPS = 100_000
"""That wait to be joined."""
_NEVER = (1 << 64) - 1


class Told(Frozen):
    """A request that is over, and what steps of engines did for it."""

    request: np.void
    share: GpuTotals | None
    """None where no step served it."""
    context: SpanContext | None
    """The name that its span has in links."""

    def of(self, seen: Seen) -> Seen:
        """Return what was seen of the request, with its share."""
        if self.share is None:
            return seen if self.context is None else replace(seen, context=self.context)
        totals, attribution = added(seen.totals, self.share), Attribution.SHARE
        return replace(seen, context=self.context, totals=totals, attribution=attribution)


class Engines:
    """Joins requests with the steps of engines. Safe to use from several threads."""

    def __init__(
        self,
        bpf: BpfObject,
        linker: ObjectLinker,
        parsers: Parsers,
        processes: ProcessTable,
        rules: SiteRules,
        wall_ns: Callable[[int], int],
        observe: Callable[[int], None],
        parent_of_stream: Callable[[int], SpanContext | None],
    ) -> None:
        """`observe` is told of processes that send messages to one that is followed.

        `parent_of_stream` says whose child a request is that is a stream of HTTP/2.
        """
        programs = bpf.programs()
        self._tell_steps, self._drop_messages = programs["tell_steps"], programs["drop_messages"]
        self._drop_streams = programs["drop_streams"]
        self._leave_strangers = programs["leave_strangers"]
        self._requests, self._steps = bpf.map("requests"), bpf.map("steps")
        self._serving = bpf.map("going_on")
        """Programs that have served requests."""
        self._tables = {name: bpf.map(name) for name in ("engines", "steps", "messages", "streams")}
        self._processes = processes
        self._rules = rules
        self._wall_ns = wall_ns
        self._observe = observe
        self._parent_of_stream = parent_of_stream
        self._libraries = ProbedLibraries(parsers, linker, self._request)
        self._lock = threading.RLock()
        self._flights = Flights()
        self._waiting: list[Step] = []
        self._held: dict[int, np.void] = {}
        """Requests that are over."""
        self._shares: dict[int, GpuTotals] = {}
        self._names: dict[int, SpanContext] = {}
        self._missing: Counter[int] = Counter()
        """How often a request was looked for in vain."""
        self._released: set[int] = set()
        """Requests that were told, though steps that may have served them go on."""
        self._unowned: Counter[tuple[ProgramId, NoOwner]] = Counter()
        self._quiet_since: dict[ProgramId, int] = {}
        """Since when engines that strangers have asked have no request."""
        self._has_engines = False
        """Whether any message of a request was seen."""
        self._swept_ns = 0
        self.steps = 0
        """How many were joined with the requests that they served."""
        self.ambiguous = 0
        """How often messages of several requests were alike."""
        self._ring = RingReader(bpf.map("engine_events"), self._take)

    def close(self) -> None:
        """Let go of everything; idempotent."""
        self.detach_all()
        self._ring.close()

    def attach(self, library: Library, file: File) -> None:
        """Place the programs that see messages in a library, once, if it carries any."""
        self._libraries.attach(library, file)

    def detach(self, library: Library) -> None:
        """Take the programs out of a library that nobody uses any more."""
        self._libraries.detach(library)

    def retry(self) -> None:
        """Place programs for which there was no room, where there is some now."""
        self._libraries.retry()

    def place_no_more(self) -> None:
        """Place nothing that is not in place yet, without a wait."""
        self._libraries.place_no_more()

    def detach_all(self) -> None:
        """Take the programs away; idempotent."""
        self._libraries.close()

    def removals(self) -> dict[Table, Removal]:
        """Return how the entries of programs that have ended are taken out of the tables."""
        return {
            Table.ENGINES: by_key(self._tables["engines"]),
            Table.STEPS: by_value(self._tables["steps"], 0),
            Table.MESSAGES: by_value(self._tables["messages"], 0),
            Table.STREAMS: by_value(self._tables["streams"], 0),
        }

    def health(self) -> list[Health]:
        """Say how the thread is that reads what happens in engines."""
        return [self._ring.worker.health()]

    def probes(self) -> tuple[int, dict[str, int]]:
        """Return how many programs are in place, and how many failed, by reason."""
        return self._libraries.probes()

    def finished(self, request: np.void) -> None:
        """Take in a request that is over."""
        with self._lock:
            self._held[int(request["id"])] = request

    def collect(self, *, last: bool = False) -> tuple[list[Told], list[Span]]:
        """Return the requests that no step to come may have served, and the spans of the steps that were joined.

        All requests that were over by then must have been taken in. With `last`, nothing is waited for.
        """
        self._ring.drain()
        now = time.monotonic_ns()
        if now - self._swept_ns > _SWEEP_NS:
            self._swept_ns = now
            run_once(self._drop_messages, max(now - _STALE_NS, 0))
            run_once(self._drop_streams, max(now - _STALE_NS, 0))
        if not self._has_engines:
            # All that were over before have come by no engine.
            with self._lock:
                return [self._let_go(request) for request in list(self._held.values())], []
        run_once(self._tell_steps, _NEVER if last else now - _IDLE_NS, _NEVER if last else now - _LONG_NS)
        # Before the ring: what goes on here is told later, and what does not was told or begins later.
        going_on = self._steps_that_go_on()
        self._ring.drain()
        with self._lock:
            are_known = self._look_for_ends()
            spans = self._join() if are_known or last else []
            told = list(self._release(going_on, now, last=last)) if are_known or last else []
        return told, spans

    def leave_strangers(self) -> int:
        """Say of which engines it is known that they work for no stranger any more, and return of how many it is not.

        Called often enough to see that they are quiet.
        """
        now = time.monotonic_ns()
        keys, values = self._tables["engines"].read(PROGRAM_KEY, ENGINE)
        asked = values["strangers"] != values["left"]
        with self._lock:
            quiet, self._quiet_since = self._quiet_since, {}
            for key, engine in zip(keys[asked].tolist(), values[asked], strict=True):
                program = ProgramId(*key)
                if engine["cold_ns"] and not engine["left"] and now - int(engine["cold_ns"]) > _COLD_NS:
                    run_once(self._leave_strangers, *program, 1)
                elif self._is_of_server(int(engine["stranger"])):
                    run_once(self._leave_strangers, *program, int(engine["strangers"]))
                elif not self._flights.is_delivered(program):
                    since = self._quiet_since[program] = quiet.get(program, now)
                    active_ns = max(int(engine[name]) for name in ("stranger_ns", "worked_ns", "cold_ns"))
                    if now - max(since, active_ns) > _QUIET_NS:
                        run_once(self._leave_strangers, *program, int(engine["strangers"]))
        return int(asked.sum())

    def _is_of_server(self, stranger: int) -> bool:
        """Tell whether a program that was not followed serves requests now that are: it was there before the agent."""
        if stranger == STRANGERS:
            return False
        key = np.array([(stranger >> 32, stranger & 0xFFFFFFFF)], PROGRAM_KEY)
        return self._serving.get(key.tobytes()) is not None

    def held(self, number: int) -> np.void | None:
        """Return a request that is over and was not told yet."""
        with self._lock:
            return self._held.get(number)

    def name(self, request: np.void) -> SpanContext:
        """Return the name that a request's span will have, before the request is told."""
        number = int(request["id"])
        with self._lock:
            if number not in self._names:
                self._names[number] = self._new_name(number, request)
            return self._names[number]

    def _new_name(self, number: int, request: np.void) -> SpanContext:
        parent = None
        if request["flags"] & REQUEST_HTTP2:
            parent = self._parent_of_stream(number)
        elif (asked := parse_request(heads_of(request)[0])) is not None:
            parent = parent_of(asked.headers.values("traceparent"), asked.headers.values("tracestate"))
        own = own_span_of(request)
        return own.context(parent) if own and own.stands_for(parent) else child_of(parent)

    def leave(self, programs: Collection[ProgramId]) -> list[Told]:
        """Return the requests of programs that have ended, as they are."""
        with self._lock:
            left = [request for request in self._held.values() if _program_of(request) in programs]
            told = [self._let_go(request) for request in left]
            self._released |= {int(request["id"]) for request in left}
        return told

    def take_unowned(self) -> dict[tuple[ProgramId, NoOwner], int]:
        """Return the launches of steps that are no request's, since the last call."""
        with self._lock:
            taken, self._unowned = self._unowned, Counter()
        return taken

    def _request(self, library: Library) -> PlanRequest | None:
        return PlanRequest("messages", self._rules, library.kind) if library.kind is LibraryKind.MESSAGES else None

    def _take(self, record: bytes) -> None:
        event = np.frombuffer(record, ENGINE_EVENT)[0]
        program = ProgramId(int(event["tgid"]), int(event["exec_id"]))
        request = int(event["request"])
        with self._lock:
            match int(event["kind"]):
                case EngineEventKind.DELIVERED:
                    self._has_engines = True
                    self._flights.deliver(program, request, int(event["time_ns"]))
                case EngineEventKind.AMBIGUOUS:
                    self._has_engines = True
                    self.ambiguous += 1
                    self._flights.lose(request)
                case EngineEventKind.STEP | EngineEventKind.UNCLEAR_STEP as kind:
                    began_ns, last_ns, ended_ns = (int(event[name]) for name in ("began_ns", "last_ns", "time_ns"))
                    totals = totals_of(event["totals"])
                    is_unclear = kind == EngineEventKind.UNCLEAR_STEP
                    step = Step(program, int(event["tid"]), began_ns, last_ns, ended_ns, totals, is_unclear)
                    if len(self._waiting) >= _MOST_STEPS:
                        self._unowned[program, NoOwner.FULL] += step.totals.launches or 0
                    else:
                        self._waiting.append(step)
                case EngineEventKind.FED:
                    self._follow(int(event["sender"]), program)

    def _follow(self, pid: int, engine: ProgramId) -> None:
        try:
            self._processes.observe(pid, late=True)
        except (ProcessGoneError, OSError):
            return
        _log.info("process %d sends messages to process %d: its requests are followed", pid, engine[0])
        self._observe(pid)

    def _steps_that_go_on(self) -> dict[ProgramId, int]:
        """Return the programs whose threads are in steps, and when the earliest of these began."""
        _, values = self._steps.read("<u8", STEP)
        earliest: dict[ProgramId, int] = {}
        for tgid, exec_id, state, began_ns in values[["tgid", "exec_id", "state", "began_ns"]].tolist():
            if state != StepState.NONE:
                program = ProgramId(tgid, exec_id)
                earliest[program] = min(earliest.get(program, began_ns), began_ns)
        return earliest

    def _look_for_ends(self) -> bool:
        """Learn which requests in flight are over; False where that is not known of one, as it is being told."""
        are_known = True
        for number in list(self._flights.going_on()):
            found = self._held.get(number)
            if found is None and (value := self._requests.get(number.to_bytes(8, "little"))) is not None:
                found = np.frombuffer(value, REQUEST)[0]
            if found is None:
                self._missing[number] += 1
                if self._missing[number] > 1:
                    # It was no request after all.
                    self._forget(number)
                else:
                    are_known = False
                continue
            self.name(found)
            if ended_ns := int(found["ended_ns"]):
                is_whole = int(found["ending"]) == RequestEnding.COMPLETE
                self._flights.end(number, ended_ns if is_whole else ended_ns + _ABANDONED_NS)
        return are_known

    def _join(self) -> list[Span]:
        waiting, self._waiting = self._waiting, []
        spans = []
        for step in waiting:
            served, linked = self._flights.served_by(step)
            self.steps += bool(served)
            if linked is Linked.PARTIAL:
                self._unowned[step.program, NoOwner.AMBIGUOUS] += step.totals.launches or 0
            elif not served:
                self._unowned[step.program, NoOwner.NO_REQUEST] += step.totals.launches or 0
            else:
                self._share(step, served)
            if served:
                contexts = [self._names[number] for number in served if number in self._names]
                resource = self._processes.owner(step.program).resource
                recorded = [context for context in contexts if context.is_sampled]
                if recorded:
                    spans.append(step_span(step, resource, recorded, linked, self._wall_ns))
        return spans

    def _share(self, step: Step, served: list[int]) -> None:
        for number, part in zip(served, split(step.totals, len(served)), strict=True):
            if number in self._released:
                self._unowned[step.program, NoOwner.OUTLIVED] += part.launches or 0
            elif (before := self._shares.get(number)) is not None:
                self._shares[number] = added(before, part)
            else:
                self._shares[number] = part

    def _release(self, going_on: dict[ProgramId, int], now: int, *, last: bool) -> list[Told]:
        told = []
        for number in [*self._released]:
            if not self._awaits(number, going_on, now):
                self._forget(number)
        for number, request in list(self._held.items()):
            is_awaited = not last and self._awaits(number, going_on, now)
            if is_awaited and now - int(request["ended_ns"]) < _DEADLINE_NS:
                continue
            told.append(self._let_go(request))
            if is_awaited:
                self._released.add(number)
            else:
                self._forget(number)
        return told

    def _let_go(self, request: np.void) -> Told:
        number = int(request["id"])
        self._held.pop(number, None)
        share, context = self._shares.pop(number, None), self._names.get(number)
        if not self._has_engines:
            self._names.pop(number, None)
        if share is not None and request["flags"] & REQUEST_AMBIGUOUS:
            # Nothing of it is known.
            self._unowned[min(self._flights.engines_of(number)), NoOwner.AMBIGUOUS] += share.launches or 0
            share = None
        return Told(request, share, context)

    def _awaits(self, number: int, going_on: dict[ProgramId, int], now: int) -> bool:
        """Tell whether a step that goes on, or begins yet, may serve a request that is over."""
        programs = self._flights.engines_of(number)
        ended_ns = next(self._flights.ends_of(number), None)
        return ended_ns is not None and (
            now <= ended_ns or any(going_on.get(program, _NEVER) <= ended_ns for program in programs)
        )

    def _forget(self, number: int) -> None:
        if (share := self._shares.pop(number, None)) is not None:
            # It went without being told.
            engine = min(self._flights.engines_of(number))
            self._unowned[engine, NoOwner.OUTLIVED] += share.launches or 0
        self._flights.forget(number)
        self._names.pop(number, None)
        self._missing.pop(number, None)
        self._released.discard(number)


def _program_of(request: np.void) -> ProgramId:
    return ProgramId(int(request["tgid"]), int(request["exec_id"]))


def message_seeds() -> dict[str, int]:
    """Return random numbers for what messages are told by."""
    return {name: int.from_bytes(os.urandom(8), "little") for name in ("message_seed", "message_seed_2")}


__all__ = ["ENGINE_MAPS", "ENGINE_RUN_HERE", "ENGINE_TRACEPOINTS", "Engines", "Told", "message_seeds"]
