"""When did each rank arrive at a collective, and how much later than the first of this host?

What is submitted at the end of a group arrives there: calls within one are held until their thread's group ends.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from ...bpf.abi.nccl import NCCL_ARRIVAL, NCCL_ARRIVAL_GROUP, NCCL_ARRIVAL_GROUPED
from ...bpf.records import struct_of
from ...discovery.processes import Process
from ...discovery.program_id import ProgramId
from ...probes.nccl import HOOKS
from ...signals.metrics import Buckets, Measurement, attributes, bucket_index
from ...signals.structs import Record
from . import metrics
from .sums import comm_attributes

_RECORD = struct_of(NCCL_ARRIVAL)
_MAX_WAITING = 65_536
"""Arrivals that are compared, or wait for their group to end; beyond, the oldest are let go."""
_Which = tuple[ProgramId, int, int, int, int]
"""Program, communicator, rank, ranks and function."""
_LATE_NS = 10_000_000_000
"""So long a collective waits for further ranks of this host."""
_UNITS = 1 << 30
"""In which durations are counted in buckets, to the second."""


class Arrival(NamedTuple):
    """A rank's call of one collective; times by the monotonic clock."""

    program: ProgramId
    comm: int
    rank: int
    ranks: int
    sequence: int
    arrived_ns: int
    returned_ns: int
    """When the call, or its group's end, returned; 0 when it has not."""
    elements: int
    root: int
    function: int
    datatype: int
    reduction: int

    @property
    def collective(self) -> str:
        return HOOKS[self.function].collective


def read_arrivals(record: bytes) -> tuple[Arrival, int, int]:
    """Return a record of the kernel's, its thread and its flags."""
    # Not by numpy, which takes longer for one record than all else that is done with it.
    tgid, exec_id, comm, rank, ranks, sequence, entered_ns, returned_ns, *said, _, tid, flags = _RECORD.unpack_from(
        record
    )
    return Arrival(ProgramId(tgid, exec_id), comm, rank, ranks, sequence, entered_ns, returned_ns, *said), tid, flags


class _Collective(Record):
    """One collective, as the ranks of this host arrive at it."""

    since_ns: int
    arrived: dict[tuple[ProgramId, int], Arrival]


class Arrivals:
    """Takes in arrivals, and compares those of one collective. Owned by one thread."""

    def __init__(self, owner: Callable[[ProgramId], Process], tell: Callable[[Arrival], None]) -> None:
        """`tell` is called with each arrival whose time is known."""
        self._owner = owner
        self._tell = tell
        self._grouped: OrderedDict[tuple[ProgramId, int], list[Arrival]] = OrderedDict()
        self._waiting: OrderedDict[tuple[int, int], _Collective] = OrderedDict()
        self._size = 0
        self._held = 0
        self._skews: dict[_Which, Buckets] = defaultdict(Buckets)
        self._last: Counter[_Which] = Counter()
        self._waited_ns: Counter[_Which] = Counter()
        """For those that were last."""
        self.let_go = 0
        """Arrivals that were not compared, for there were too many."""

    def take(self, record: bytes) -> None:
        """Take in a record of the kernel's."""
        arrival, tid, flags = read_arrivals(record)
        thread = arrival.program, tid
        if flags & NCCL_ARRIVAL_GROUP:
            held = self._grouped.pop(thread, ())
            self._held -= len(held)
            for one in held:
                self._add(one._replace(arrived_ns=arrival.arrived_ns, returned_ns=arrival.returned_ns))
        elif flags & NCCL_ARRIVAL_GROUPED:
            self._grouped.setdefault(thread, []).append(arrival)
            self._held += 1
            while self._held > _MAX_WAITING:
                _, oldest = self._grouped.popitem(last=False)
                self._held -= len(oldest)
                self.let_go += len(oldest)
        else:
            self._add(arrival)

    def held(self) -> Iterator[Arrival]:
        """Yield those whose group has not ended."""
        for arrivals in self._grouped.values():
            yield from arrivals

    def forget(self, programs: Collection[ProgramId]) -> None:
        """Hold nothing of programs that have ended."""
        for thread in [thread for thread in self._grouped if thread[0] in programs]:
            self._held -= len(self._grouped.pop(thread))

    def collect(self, here: Mapping[int, int], now_ns: int) -> Iterator[Measurement]:
        """Yield by how much ranks were late, of collectives at which all have arrived that will.

        `here` says how many ranks of each communicator this host has.
        """
        for key, collective in list(self._waiting.items()):
            if len(collective.arrived) >= max(here.get(key[0], 0), 2) or now_ns - collective.since_ns > _LATE_NS:
                self._compare(key)
        skews, self._skews = self._skews, defaultdict(Buckets)
        last, self._last = self._last, Counter()
        waited_ns, self._waited_ns = self._waited_ns, Counter()
        for which, histogram in skews.items():
            program, comm, rank, ranks, function = which
            resource = self._owner(program).resource
            attrs = attributes({**comm_attributes(comm, rank, ranks), "nccl.collective": HOOKS[function].collective})
            yield Measurement(resource, metrics.ARRIVAL_SKEW, attrs, histogram)
            # Also of ranks that never were: what is compared with others' must be there.
            yield Measurement(resource, metrics.LAST_ARRIVALS, attrs, last[which])
            yield Measurement(resource, metrics.WAITED_FOR, attrs, waited_ns[which] / 1e9)

    def _add(self, arrival: Arrival) -> None:
        self._tell(arrival)
        key = arrival.comm, arrival.sequence
        collective = self._waiting.get(key)
        if collective is None:
            collective = self._waiting[key] = _Collective(arrival.returned_ns, {})
        who = arrival.program, arrival.rank
        if who not in collective.arrived:
            self._size += 1
        collective.arrived[who] = arrival
        if len(collective.arrived) == arrival.ranks:
            self._compare(key)
        while self._size > _MAX_WAITING:
            _, oldest = self._waiting.popitem(last=False)
            self._size -= len(oldest.arrived)
            self.let_go += len(oldest.arrived)

    def _compare(self, key: tuple[int, int]) -> None:
        arrived = self._waiting.pop(key).arrived.values()
        self._size -= len(arrived)
        if len(arrived) < 2:
            return
        in_order = sorted(arrived, key=lambda one: one.arrived_ns)
        for one in in_order:
            _add_duration(self._skews[_which(one)], one.arrived_ns - in_order[0].arrived_ns)
        last = _which(in_order[-1])
        self._last[last] += 1
        self._waited_ns[last] += in_order[-1].arrived_ns - in_order[-2].arrived_ns


def _which(one: Arrival) -> _Which:
    return one.program, one.comm, one.rank, one.ranks, one.function


def _add_duration(histogram: Buckets, ns: int) -> None:
    units = -(-ns * _UNITS // 1_000_000_000)
    histogram.count += 1
    histogram.sum += ns / 1e9
    if units:
        index = bucket_index(units) - _UNITS.bit_length() + 1
        histogram.counts[index] = histogram.counts.get(index, 0) + 1
    else:
        histogram.zero_count += 1
