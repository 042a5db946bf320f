"""At which bounds is a histogram told where exponential buckets are not understood? Powers of two: no count is guessed.

Each bound is the edge of an exponential bucket of scale 0, so that the counts at the bounds are exact. They are the same
for all series of a metric, and for good: Prometheus adds up and compares buckets by their bounds.
"""

from __future__ import annotations

from functools import cache

from ...signals.metrics import Buckets, MetricSpec
from ...signals.structs import Frozen


class ExplicitBounds(Frozen):
    """Every `step`th power of two from `first` on."""

    first: int
    step: int
    values: tuple[float, ...]

    def counts(self, histogram: Buckets) -> list[int]:
        """Return how many values lie in each bucket: up to a bound and above the one before, the last above all."""
        found = [0] * (len(self.values) + 1)
        found[0] = histogram.zero_count
        for index, count in histogram.counts.items():
            found[self.position(index)] += count
        return found

    def position(self, index: int) -> int:
        """Return in which bucket an exponential one lies."""
        # Bucket i ends at 2**(i + 1), which is in the bucket of the next bound.
        return min(max(-((self.first - index - 1) // self.step), 0), len(self.values))


_RANGES = {
    "s": (-20, 9, 1),  # a microsecond to 8.5 minutes
    "By": (4, 36, 2),  # 16 bytes to 64 GiB
}
"""By unit: exponents of the first and the last bound, and the step between two."""
_OTHERS = (0, 32, 2)


@cache
def explicit_bounds(spec: MetricSpec) -> ExplicitBounds:
    """Return the bounds of a metric, by its unit."""
    first, last, step = _RANGES.get(spec.unit, _OTHERS)
    return ExplicitBounds(first, step, tuple(2.0**exponent for exponent in range(first, last + 1, step)))
