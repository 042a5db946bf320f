"""How buckets of the kernel's rows lead to those of OTLP's exponential histograms at scale 0."""

from __future__ import annotations

BUCKET_SHIFT = 2
"""A row's bucket b is OTLP's bucket b - BUCKET_SHIFT."""
DURATION_SHIFT = 32
"""The same for durations in seconds, which are counted in units of 2**-30 s."""
