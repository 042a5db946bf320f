"""How is a device's time split among the sites that gave it work? What is certain of each, and an estimate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...components.counting.device_time import BusyPeriod, BusyPeriodSum, DeviceTime, Parts
from ...signals.structs import Record

_ROUNDS = 100
"""Of the estimate; its error falls with each."""
_SITES_OF_A_PART = 64
"""The most that share what was done from nobody knows where, in the estimate."""

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


class Work(Record):
    """What is known of the submissions to one device: one entry a stack."""

    number: list[int] = msgspec.field(default_factory=list)
    site: list[int] = msgspec.field(default_factory=list)
    when_ns: list[int] = msgspec.field(default_factory=list)
    others: Counter[int] = msgspec.field(default_factory=Counter)
    """By site: submissions that its stacks stand for, beyond the stacks themselves."""
    unknown: int = 0
    """Submissions that no stack stands for."""


class Share(NamedTuple):
    """The numbers of `SiteTime`."""

    lower_ns: int
    upper_ns: int
    at_least_ns: int
    at_most_ns: int


class Shares(NamedTuple):
    """How a device's time was split. The lower bounds of all add up to its own, and so do the upper ones."""

    sites: list[Share]
    elsewhere: dict[int, Share]
    """What was done, by `part_of`, from where no stack was taken."""
    unknown: Share
    is_sampled: bool
    """Something was submitted of which no stack was taken: it had the unknown share. Else nothing was submitted at all."""


class _Rows:
    """Stretches of a device's time, each with who may have used it: how many submissions of whom."""

    def __init__(self) -> None:
        self.bounds: list[tuple[int, int]] = []
        self.row: list[int] = []
        self.who: list[int] = []
        self.calls: list[float] = []

    def add(self, lower_ns: int, upper_ns: int, calls: Mapping[int, float]) -> None:
        """Add one."""
        self.row += [len(self.bounds)] * len(calls)
        self.who += calls.keys()
        self.calls += calls.values()
        self.bounds.append((lower_ns, upper_ns))


def split(work: Work, time: DeviceTime, parts: Sequence[int]) -> Shares:
    """Split a device's time among sites, of which `parts` says what they do.

    - Of a busy period whose every submission has its stack it is certain who took part, and from when on.
    - Of another it may be known what was done: only sites that do such things took part.
    - All other time may have been anybody's.
    """
    parts = list(parts)
    rows = _Rows()
    least: Counter[int] = Counter()
    most: Counter[int] = Counter()
    kinds = _sorted(time.kinds)
    weights = Counter(work.site) + work.others
    rest: dict[int, float] = dict(weights)
    for period, taken in _whole(work, time):
        calls = Counter(site for _, site in taken)
        rows.add(period.lower_ns, period.closed_ns - period.opened_ns, calls)
        if len(calls) == 1:
            least[taken[0][1]] += period.lower_ns
            most[taken[0][1]] += period.closed_ns - period.opened_ns
        else:
            for site, since in {site: when for when, site in reversed(taken)}.items():
                most[site] += period.closed_ns - since
        for site, n in calls.items():
            rest[site] -= n
        _take_out(kinds, Counter(parts[site] for _, site in taken), period)

    sites_of: dict[int, list[int]] = {}
    for site, part in enumerate(parts):
        sites_of.setdefault(part, []).append(site)
    sites = len(parts)
    elsewhere: dict[int, int] = {}
    for kind, total in kinds.items():
        calls_of: dict[int, float] = {}
        for part, n in kind:
            # From where else? Who stands for that has no weight while there are stacks.
            other = elsewhere.setdefault(part, sites + len(elsewhere))
            known = sorted(sites_of.get(part, ()), key=lambda s: -weights[s])
            for site in (*known, other):
                most[site] += total.upper_ns
            known = known[:_SITES_OF_A_PART] if any(weights[s] for s in known) else [other]
            whole = sum(weights[s] for s in known) or 1
            for site in known:
                calls_of[site] = total.periods * n * (weights[site] / whole if site != other else 1)
                rest[site] = rest.get(site, 0) - calls_of[site]
        if len(kind) == 1:
            least[elsewhere[kind[0][0]]] += total.lower_ns
        rows.add(total.lower_ns, total.upper_ns, calls_of)

    unknown = sites + len(elsewhere)
    left = time.lower_ns - sum(b[0] for b in rows.bounds), time.upper_ns - sum(b[1] for b in rows.bounds)
    others = {site: n for site, n in rest.items() if n > 0} | ({unknown: work.unknown} if work.unknown else {})
    rows.add(max(left[0], 0), max(left[1], 0), others or {unknown: 1})
    if left[1] > 0:
        for who in (*range(sites), *elsewhere.values(), unknown):
            most[who] += left[1]
    lower, upper = _estimate(rows, unknown + 1, time)
    shares = [Share(lower[who], upper[who], least[who], min(most[who], time.upper_ns)) for who in range(unknown + 1)]
    return Shares(
        shares[:sites],
        {part: shares[who] for part, who in elsewhere.items()},
        shares[unknown],
        is_sampled=bool(weights or work.unknown),
    )


def _sorted(kinds: Mapping[Parts, BusyPeriodSum]) -> dict[Parts, BusyPeriodSum]:
    """Return the kinds of busy periods, whatever came first in them."""
    found: dict[Parts, BusyPeriodSum] = {}
    for parts, total in kinds.items():
        kind = tuple(sorted(parts))
        found[kind] = total.plus(found[kind]) if kind in found else total
    return found


def _take_out(kinds: dict[Parts, BusyPeriodSum], parts: Counter[int], period: BusyPeriod) -> None:
    """Take a busy period out of its kind; the present one may not be there yet."""
    kind = tuple(sorted(parts.items()))
    if (total := kinds.get(kind)) is None:
        return
    left = total.plus(BusyPeriodSum(1, period.closed_ns - period.opened_ns, period.lower_ns), -1)
    kinds[kind] = left
    if left.periods <= 0 or min(left) < 0:
        del kinds[kind]


def _whole(work: Work, time: DeviceTime) -> Iterator[tuple[BusyPeriod, list[tuple[int, int]]]]:
    """Yield the busy periods that lie in this time and have a stack of each submission: when it came, from which site."""
    number = np.array(work.number, np.int64)
    order = np.argsort(number, kind="stable")
    number = number[order]
    when, site = np.array(work.when_ns, np.int64)[order], np.array(work.site, np.int64)[order]
    last, closed = 0, 0
    for period in sorted(time.periods.values()):
        start, end = np.searchsorted(number, (period.first, period.last), "right").tolist()
        if not end - start == period.last - period.first > 0 or period.opened_ns < max(time.since_ns, closed):
            continue
        taken = sorted(zip(when[start:end].tolist(), site[start:end].tolist(), strict=True))
        if period.first >= last and period.opened_ns <= taken[0][0] and taken[-1][0] <= period.closed_ns:
            last, closed = period.last, period.closed_ns
            yield period, taken


def _estimate(rows: _Rows, count: int, time: DeviceTime) -> tuple[list[int], list[int]]:
    """Return what each had of the lower and of the upper bound.

    What somebody's submission takes is taken for the same in all rows: of all such times, those that explain the rows
    best, found by the usual rounds for sums of Poisson variables. Where nothing tells two apart it is the same for both.
    """
    row, who = np.array(rows.row, np.int64), np.array(rows.who, np.int64)
    calls = np.array(rows.calls, np.float64)
    lower, upper = np.array(rows.bounds, np.float64).T
    made = np.maximum(np.bincount(who, calls, count), 1e-9)
    took: _Floats = np.ones(count)
    for _ in range(_ROUNDS):
        part = calls * took[who]
        share = part / np.bincount(row, part)[row]
        took = np.maximum(np.bincount(who, share * upper[row], count) / made, 1e-9)
    return (
        _in_whole_numbers(np.bincount(who, share * lower[row], count), time.lower_ns),
        _in_whole_numbers(np.bincount(who, share * upper[row], count), time.upper_ns),
    )


def _in_whole_numbers(parts: npt.NDArray[np.floating | np.integer], total: int) -> list[int]:
    """Return parts that add up to the total; it is the last one's when nobody has any."""
    until = np.cumsum(parts, dtype=np.float64)
    if until[-1] <= 0:
        until[-1] = 1
    ends: _Ints = np.rint(until / until[-1] * total).astype(np.int64)
    shares: list[int] = np.diff(ends, prepend=0).tolist()
    return shares
