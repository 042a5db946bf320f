"""Which value do so many of a histogram's values not exceed? Estimated within the bucket that holds it."""

from __future__ import annotations

from .metrics import Buckets


def quantile(histogram: Buckets, share: float) -> float | None:
    """Return about the value that this share of all values does not exceed; None where there are none.

    A bucket spans a factor of two; values are taken to be spread evenly over its logarithm. One value is its sum.
    """
    if histogram.count <= 0:
        return None
    if histogram.count == 1:
        return float(histogram.sum)
    wanted, passed = share * histogram.count, float(histogram.zero_count)
    if passed >= wanted:
        return 0.0
    for index in sorted(histogram.counts):
        count = histogram.counts[index]
        if count > 0 and passed + count >= wanted:
            return float(2.0 ** (index + (wanted - passed) / count))
        passed += count
    return float(2.0 ** (max(histogram.counts, default=-1) + 1))
