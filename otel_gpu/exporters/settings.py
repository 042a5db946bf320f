"""What is the same for exporters of several types? Plain values, cheap to import: nothing here touches the network."""

from __future__ import annotations

from typing import Literal

Temporality = Literal["cumulative", "delta"]
Histograms = Literal["exponential", "explicit"]
"""Exponential as they are counted, or with explicit bounds (`wire/explicit_bounds.py`) for what does not understand those."""

MAX_REQUEST_BYTES = 3_500_000
"""Below the 4 MiB that a gRPC receiver accepts unless told otherwise."""
