"""Which rank is late, again and again? Which ranks ask for different things, and which are waited for?

Pure: from when each rank arrived at each collective. All ranks of a communicator make the same calls in the same order, so that
the number of a call tells which calls belong together.

A rank's lateness at a collective is how much later it came than the median of the others, so that one late rank changes that
of the others little. A rank is a straggler where the median of its lateness over a window of collectives is as large as is asked
for, where that is many times its standard error (by the median absolute deviation, which a few outliers do not move), and where
it was the last to arrive in at least half of them: one that is late now and then, as on a busy host all are, is none.
"""

from __future__ import annotations

import enum
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

import msgspec

from ...signals.structs import Frozen, Record
from .links import Latency, Link, SlowLink, slow_links

_ERROR_OF_MEDIAN = 1.4826 * 1.2533
"""The standard error of a median is so many median absolute deviations by the root of n, of normal noise."""
_SMALLEST_ERROR_S = 1e-4
_MAX_TOLD = 10
"""Mismatches of a communicator that are told one by one."""


class Signature(Frozen):
    """What a rank asked for."""

    collective: str
    count: int | None
    datatype: str
    reduction: str | None
    root: int | None

    def __str__(self) -> str:
        what = f"{self.collective} of {self.count if self.count is not None else '?'} {self.datatype}"
        if self.reduction is not None:
            what += f", {self.reduction}"
        return what if self.root is None else f"{what}, root {self.root}"


class Arrival(Frozen):
    """A rank's call of one collective."""

    comm: str
    rank: int
    ranks: int
    sequence: int
    arrived_ns: int
    """By the wall clock of its host."""
    ended_ns: int
    in_flight: bool
    """It had not returned at `ended_ns`."""
    host: str
    pid: int
    signature: Signature


class Member(Frozen):
    """What is known last of one rank of a communicator."""

    host: str
    pid: int
    ranks: int
    sequence: int


class Data(Record):
    """What was exported."""

    arrivals: list[Arrival] = msgspec.field(default_factory=list)
    members: dict[tuple[str, int], Member] = msgspec.field(default_factory=dict)
    """By communicator and rank."""
    until_ns: dict[str, int] = msgspec.field(default_factory=dict)
    """Up to when there are data of a host."""
    latencies: dict[Link, Latency] = msgspec.field(default_factory=dict)


class Rules(Frozen):
    """What is found."""

    min_lateness_s: float = 0.003
    clock_error_s: float = 0.010
    """By how much the clocks of two hosts may differ."""
    hang_s: float = 5.0
    """Who is waited for that long does not come."""
    window: int = 50
    """Collectives."""
    fewest: int = 5
    """Of fewer nothing is said."""
    least_score: float = 5.0
    slow_times: float = 3.0
    """So many times as long as on others work takes on a link that is slow."""
    fewest_requests: int = 20


class Straggler(Frozen):
    """A rank that is late again and again."""

    rank: int
    host: str
    pid: int
    lateness_s: float
    """The median, in the window where it was largest."""
    score: float
    """How many standard errors that is."""
    last: int
    """How often it came last, in the windows where it was a straggler,"""
    of: int
    """of so many collectives."""
    first_sequence: int
    last_sequence: int


class Mismatch(Frozen):
    """A collective of which ranks asked for different things."""

    sequence: int
    asked: Mapping[Signature, tuple[int, ...]]
    """The ranks that asked for each, most of them first."""


class HangKind(enum.Enum):
    """Why a collective does not come to an end."""

    MISSING = "rank missing"
    NOT_COMPLETED = "entered and not completed"


class Hang(Frozen):
    """A collective that does not come to an end."""

    kind: HangKind
    sequence: int
    signature: Signature | None
    ranks: tuple[int, ...]
    """Those that are missing, or that have entered and not returned."""
    waiting: tuple[int, ...]
    """Those that have entered it."""
    waiting_s: float
    """For how long, when the data end."""


class Communicator(Frozen):
    """What was found of one communicator."""

    comm: str
    ranks: int
    hosts: int
    unseen: tuple[int, ...]
    """Ranks of which there are no data."""
    compared: int
    """Collectives whose ranks were compared."""
    skew_s: float
    """Between the first rank and the last, the median,"""
    skew_99_s: float
    """and the 99th percentile."""
    stragglers: tuple[Straggler, ...]
    mismatches: tuple[Mismatch, ...]
    """The first ones,"""
    mismatched: int
    """of so many."""
    hangs: tuple[Hang, ...]
    slow_links: tuple[SlowLink, ...]


def find(data: Data, rules: Rules = Rules()) -> list[Communicator]:
    """Return what there is to say of each communicator."""
    by_comm: dict[str, dict[int, dict[int, Arrival]]] = defaultdict(lambda: defaultdict(dict))
    for arrival in data.arrivals:
        of_rank = by_comm[arrival.comm][arrival.sequence]
        before = of_rank.get(arrival.rank)
        # What is told again has returned meanwhile.
        if before is None or before.in_flight:
            of_rank[arrival.rank] = arrival
    return [_communicator(comm, collectives, data, rules) for comm, collectives in sorted(by_comm.items())]


def _communicator(
    comm: str, collectives: Mapping[int, Mapping[int, Arrival]], data: Data, rules: Rules
) -> Communicator:
    members = _members(comm, collectives, data)
    ranks = max(m.ranks for m in members.values())
    hosts = len({m.host for m in members.values()})
    # Those that everybody has entered of whom there are data.
    whole = [collectives[s] for s in sorted(collectives) if len(members) > 1 and len(collectives[s]) == len(members)]
    skews = sorted(
        (max(a.arrived_ns for a in one.values()) - min(a.arrived_ns for a in one.values())) / 1e9 for one in whole
    )
    mismatches = list(_mismatches(collectives))
    least_s = rules.min_lateness_s + (rules.clock_error_s if hosts > 1 else 0)
    return Communicator(
        comm,
        ranks,
        hosts,
        tuple(rank for rank in range(ranks) if rank not in members) if ranks <= _MOST_RANKS else (),
        len(whole),
        median(skews) if skews else 0.0,
        skews[math.ceil(len(skews) * 0.99) - 1] if skews else 0.0,
        tuple(_stragglers(whole, members, least_s, rules)),
        tuple(mismatches[:_MAX_TOLD]),
        len(mismatches),
        tuple(_hangs(collectives, members, data.until_ns, rules)),
        tuple(
            slow_links(
                {link: latency for link, latency in data.latencies.items() if link.comm == comm},
                times=rules.slow_times,
                fewest=rules.fewest_requests,
            )
        ),
    )


_MOST_RANKS = 1_000_000


def _members(comm: str, collectives: Mapping[int, Mapping[int, Arrival]], data: Data) -> dict[int, Member]:
    members = {rank: member for (its, rank), member in data.members.items() if its == comm}
    for sequence, arrivals in collectives.items():
        for rank, arrival in arrivals.items():
            known = members.get(rank)
            if known is None or known.sequence < sequence:
                members[rank] = Member(arrival.host, arrival.pid, arrival.ranks, sequence)
    return members


def _stragglers(
    whole: Sequence[Mapping[int, Arrival]], members: Mapping[int, Member], least_s: float, rules: Rules
) -> Iterator[Straggler]:
    late = [_lateness(one) for one in whole]
    for rank, member in sorted(members.items()):
        found = [
            (part, score, lateness)
            for part in _windows(len(whole), rules)
            if (lateness := median(values := [late[i][rank] for i in part])) >= least_s
            and (score := _score(values, lateness)) >= rules.least_score
            and 2 * sum(late[i][rank] == max(late[i].values()) for i in part) >= len(part)
        ]
        if not found:
            continue
        within = [i for part, _, _ in found for i in part]
        _, score, lateness = max(found, key=lambda one: one[2])
        yield Straggler(
            rank,
            member.host,
            member.pid,
            lateness,
            score,
            sum(late[i][rank] == max(late[i].values()) for i in within),
            len(within),
            whole[within[0]][rank].sequence,
            whole[within[-1]][rank].sequence,
        )


def _windows(collectives: int, rules: Rules) -> Iterator[range]:
    """Yield windows one behind the other; what is left over belongs to the last."""
    if collectives < rules.fewest:
        return
    number = max(collectives // rules.window, 1)
    for i in range(number):
        yield range(i * rules.window, collectives if i == number - 1 else (i + 1) * rules.window)


def _lateness(arrivals: Mapping[int, Arrival]) -> dict[int, float]:
    """Return how much later each rank came than the median of the others, in seconds."""
    order = sorted((a.arrived_ns, rank) for rank, a in arrivals.items())
    late = {}
    for place, (arrived, rank) in enumerate(order):
        others = len(order) - 1
        # The others' median, of the order without this rank.
        low, high = ((others - 1) // 2, others // 2)
        at = [order[i if i < place else i + 1][0] for i in (low, high)]
        late[rank] = (arrived - sum(at) / 2) / 1e9
    return late


def _score(values: Sequence[float], middle: float) -> float:
    deviation = median(abs(value - middle) for value in values)
    return middle / max(_ERROR_OF_MEDIAN * deviation / math.sqrt(len(values)), _SMALLEST_ERROR_S)


def _mismatches(collectives: Mapping[int, Mapping[int, Arrival]]) -> Iterator[Mismatch]:
    for sequence, arrivals in sorted(collectives.items()):
        asked = Counter(a.signature for a in arrivals.values())
        if len(asked) > 1:
            yield Mismatch(
                sequence,
                {
                    signature: tuple(sorted(r for r, a in arrivals.items() if a.signature == signature))
                    for signature, _ in asked.most_common()
                },
            )


def _hangs(
    collectives: Mapping[int, Mapping[int, Arrival]],
    members: Mapping[int, Member],
    until_ns: Mapping[str, int],
    rules: Rules,
) -> Iterator[Hang]:
    furthest = max(member.sequence for member in members.values())
    behind: dict[int, list[int]] = defaultdict(list)
    for rank, member in members.items():
        if member.sequence < furthest:
            behind[member.sequence + 1].append(rank)
    for sequence, missing in sorted(behind.items()):
        there = collectives.get(sequence, {})
        if not there:
            continue  # nobody's arrival was told
        since = min(a.arrived_ns for a in there.values())
        gone = [rank for rank in missing if until_ns.get(members[rank].host, 0) - since >= rules.hang_s * 1e9]
        if gone:
            yield _hang(HangKind.MISSING, sequence, there, gone, since, until_ns)
            return
    last = collectives.get(furthest, {})
    stuck = [rank for rank, a in last.items() if a.in_flight]
    if stuck and not behind:
        since = max(a.arrived_ns for a in last.values())
        if max(until_ns.get(a.host, 0) for a in last.values()) - since >= rules.hang_s * 1e9:
            yield _hang(HangKind.NOT_COMPLETED, furthest, last, stuck, since, until_ns)


def _hang(
    kind: HangKind,
    sequence: int,
    there: Mapping[int, Arrival],
    ranks: Iterable[int],
    since_ns: int,
    until_ns: Mapping[str, int],
) -> Hang:
    (signature, _), *_ = Counter(a.signature for a in there.values()).most_common()
    until = max(until_ns.get(a.host, 0) for a in there.values())
    return Hang(kind, sequence, signature, tuple(sorted(ranks)), tuple(sorted(there)), (until - since_ns) / 1e9)
