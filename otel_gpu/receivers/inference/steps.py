"""Which requests did a step of an engine serve? Those in flight: delivered to the engine, and not answered in full.

An engine that works for many requests at once does not say for which. What it may have served is known: no other request
than those that were delivered to it before the step's last launch, and whose response went on when it began. So a step's
totals are split evenly between these; the parts add up to the whole.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from msgspec.structs import astuple

from ...discovery.program_id import ProgramId
from ...signals.structs import Frozen, Record
from .request import GpuTotals


class Linked(enum.Enum):
    """How the requests of a step are known; the value is that of `otel_gpu.linked`."""

    EXACT = "exact"
    """There was one in flight, all the time."""
    SUPERSET = "superset"
    """Those that it served are among them."""
    PARTIAL = "partial"
    """One that it served may be missing: messages of several requests were alike, or a stranger was not answered yet."""


class Step(Frozen):
    """What a thread of an engine did from its first launch to what the host waited for. Times are CLOCK_MONOTONIC."""

    program: ProgramId
    thread: int
    began_ns: int
    last_ns: int
    """Its last launch, or copy to the device."""
    ended_ns: int
    totals: GpuTotals
    is_unclear: bool = False
    """It may have served somebody else as well, of whom no request is known."""


class _Flight(Record):
    delivered_ns: int
    ended_ns: int | None = None

    def may_be_in(self, step: Step) -> bool:
        return self.delivered_ns <= step.last_ns and (self.ended_ns is None or self.ended_ns >= step.began_ns)


class Flights:
    """Remembers which requests are in flight in which engine. Owned by one thread."""

    def __init__(self) -> None:
        self._flights: dict[ProgramId, dict[int, _Flight]] = {}
        self._engines: dict[int, set[ProgramId]] = {}
        """By request."""
        self._lost: dict[int, int | None] = {}
        """Requests of which nobody knows where they were delivered, and when they ended."""

    def __len__(self) -> int:
        return len(self._engines) + len(self._lost)

    def deliver(self, program: ProgramId, request: int, at_ns: int) -> None:
        """Say that a message of a request came to a program; the first counts."""
        self._flights.setdefault(program, {}).setdefault(request, _Flight(at_ns))
        self._engines.setdefault(request, set()).add(program)

    def lose(self, request: int) -> None:
        """Say that nobody can tell where a message of a request went."""
        self._lost.setdefault(request, None)

    def end(self, request: int, at_ns: int) -> None:
        """Say when a request's response was sent in full, or cut."""
        for program in self._engines.get(request, ()):
            self._flights[program][request].ended_ns = at_ns
        if request in self._lost:
            self._lost[request] = at_ns

    def going_on(self) -> Iterator[int]:
        """Yield the requests whose end is not known."""
        yield from (
            request
            for request, programs in self._engines.items()
            if any(self._flights[program][request].ended_ns is None for program in programs)
        )
        yield from (request for request, ended_ns in self._lost.items() if ended_ns is None)

    def is_delivered(self, program: ProgramId) -> bool:
        """Tell whether a request was delivered to a program that is not forgotten yet."""
        return program in self._flights

    def engines_of(self, request: int) -> frozenset[ProgramId]:
        """Return the programs that a request was delivered to."""
        return frozenset(self._engines.get(request, ()))

    def ends_of(self, request: int) -> Iterator[int]:
        """Yield when a request ended, if that is known and it was delivered."""
        for program in self._engines.get(request, ()):
            if (ended_ns := self._flights[program][request].ended_ns) is not None:
                yield ended_ns

    def served_by(self, step: Step) -> tuple[list[int], Linked]:
        """Return the requests that a step may have served, in the order in which they came."""
        flights = self._flights.get(step.program, {})
        served = [request for request, flight in flights.items() if flight.may_be_in(step)]
        if step.is_unclear or any(ended_ns is None or ended_ns >= step.began_ns for ended_ns in self._lost.values()):
            return served, Linked.PARTIAL
        if len(served) == 1:
            only = flights[served[0]]
            if only.delivered_ns <= step.began_ns:
                return served, Linked.EXACT
        return served, Linked.SUPERSET

    def forget(self, request: int) -> None:
        """Drop a request that no step can have served any more."""
        for program in self._engines.pop(request, ()):
            del self._flights[program][request]
            if not self._flights[program]:
                del self._flights[program]
        self._lost.pop(request, None)


def split(totals: GpuTotals, parts: int) -> list[GpuTotals]:
    """Split totals evenly: each number's parts differ by one at most, and add up to it."""
    columns = [_shares(value, parts) for value in astuple(totals)]
    return [GpuTotals(*row) for row in zip(*columns, strict=True)]


def added(a: GpuTotals, b: GpuTotals) -> GpuTotals:
    """Return the sum of two totals; what is not known of one is not known of both."""
    pairs = zip(astuple(a), astuple(b), strict=True)
    return GpuTotals(*(None if x is None or y is None else x + y for x, y in pairs))


def _shares(value: int | None, parts: int) -> list[int | None]:
    if value is None:
        return [None] * parts
    each, more = divmod(value, parts)
    return [each + (n < more) for n in range(parts)]
