"""How are values distributed? Buckets of exponential and of explicit histograms, added up, and what lies below a share of them."""

from __future__ import annotations

import itertools
import math

import msgspec

from ..signals.structs import Record

MAX_SCALE = 3
"""Finer buckets, below nine per cent wide, are put together."""
_MAX_BUCKETS = 1_000


class Distribution(Record):
    """Counts of values by upper bound. Of exponential buckets it is an index at `scale`, else a bound."""

    counts: dict[float, int] = msgspec.field(default_factory=dict)
    scale: int | None = None
    """None where the buckets have bounds of their own."""
    zero: int = 0
    """Values of zero and below."""

    def add(self, other: Distribution) -> None:
        """Take in another one."""
        if other.scale is not None and (self.scale is not None or not self.counts):
            scale = other.scale if self.scale is None else min(self.scale, other.scale)
            self._coarsen(scale)
            shift = other.scale - scale
            if not shift:
                counts = self.counts
                for at, n in other.counts.items():
                    counts[at] = counts.get(at, 0) + n
                self.zero += other.zero
                self._limit()
                return
            for index, n in other.counts.items():
                at = int(index) >> shift
                self.counts[at] = self.counts.get(at, 0) + n
        else:
            self._explicit()
            for bound, n in other.bounds():
                self.counts[bound] = self.counts.get(bound, 0) + n
        self.zero += other.zero
        self._limit()

    def copy(self) -> Distribution:
        """Return one that changes by itself."""
        return Distribution(dict(self.counts), self.scale, self.zero)

    def bounds(self) -> list[tuple[float, int]]:
        """Return upper bounds and counts, smallest first."""
        if self.scale is None:
            return sorted(self.counts.items())
        return [(_power((index + 1) * 2.0**-self.scale), n) for index, n in sorted(self.counts.items())]

    def quantile(self, share: float) -> float | None:
        """Return the upper bound of the bucket in which this share of the values ends; None of none."""
        total = self.zero + sum(self.counts.values())
        if not total:
            return None
        left = share * total - self.zero
        if left <= 0:
            return 0.0
        bounds = self.bounds()
        for bound, n in bounds:
            left -= n
            if left <= 0:
                return bound
        return bounds[-1][0]

    def _coarsen(self, scale: int) -> None:
        if self.scale is not None and scale < self.scale:
            counts: dict[float, int] = {}
            for index, n in self.counts.items():
                at = int(index) >> (self.scale - scale)
                counts[at] = counts.get(at, 0) + n
            self.counts = counts
        self.scale = scale

    def _limit(self) -> None:
        """Put neighbours together where there are too many: deltas of whoever sends may have other buckets each time."""
        while len(self.counts) > _MAX_BUCKETS:
            if self.scale is not None:
                self._coarsen(self.scale - 1)
                continue
            pairs = sorted(self.counts.items())
            lower, upper = pairs[-2::-2], pairs[-1::-2]
            merged = {bound: n + (lower[i][1] if i < len(lower) else 0) for i, (bound, n) in enumerate(upper)}
            self.counts = dict(sorted(merged.items()))

    def _explicit(self) -> None:
        if self.scale is not None:
            self.counts, self.scale = dict(self.bounds()), None


def exponential(scale: int, zero: int, offset: int, counts: list[int]) -> Distribution:
    """Return the distribution of an exponential histogram's positive buckets; ValueError of what is none."""
    if not -20 <= scale <= 40:
        raise ValueError(f"a histogram of scale {scale}")
    shift = max(0, scale - MAX_SCALE)
    found: dict[float, int] = {}
    for i, n in enumerate(counts):
        if n:
            at = (offset + i) >> shift
            found[at] = found.get(at, 0) + n
            if len(found) > _MAX_BUCKETS:
                raise ValueError(f"a histogram of more than {_MAX_BUCKETS} buckets")
    return Distribution(found, min(scale, MAX_SCALE), zero)


def explicit(bounds: list[float], counts: list[int]) -> Distribution:
    """Return the distribution of a histogram with bounds of its own; ValueError of what is none."""
    if counts and len(counts) != len(bounds) + 1:
        raise ValueError(f"{len(counts)} buckets between {len(bounds)} bounds")
    if len(bounds) > _MAX_BUCKETS:
        raise ValueError(f"a histogram of more than {_MAX_BUCKETS} buckets")
    if not all(a < b for a, b in itertools.pairwise(bounds)) or any(map(math.isnan, bounds)):
        raise ValueError("bounds that do not rise")
    found: dict[float, int] = {}
    for bound, n in zip([*bounds, math.inf], counts):
        if n:
            found[bound] = found.get(bound, 0) + n
    return Distribution(found)


def _power(exponent: float) -> float:
    return math.inf if exponent >= 1024 else 2.0**exponent
