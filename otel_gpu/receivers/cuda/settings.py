"""What can be set of the receiver of CUDA and HIP?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from ...probes.counted import Counted


@dataclass(frozen=True, slots=True)
class CudaSettings:
    """What programs ask of CUDA and HIP, counted in the kernel."""

    map_entries: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)] = 65_536
    """Rows of the aggregation table; what does not fit is counted in overflow rows."""
    site: Literal["fast", "entry"] = "fast"
    """Where probes go: the cheapest safe instruction, or always the function's first."""
    libraries: tuple[str, ...] = ()
    """Driver libraries to attach to before any process maps them."""
    arm64_single_step: bool = False
    """Allow probes on single-stepped instructions on arm64, where they have crashed GPU processes."""
    link: Literal["auto", "multi", "perf", "copies"] = "auto"
    """How probes are placed: all of a library at once, by perf events, or a program for each; `auto`: the best that the kernel offers."""
    busy_time: bool = True
    """Bound the time for which devices work; without, a launch costs a little less."""


@dataclass(frozen=True, slots=True)
class CountingSettings:
    """Of a receiver whose metrics nobody exports: others need what it knows."""

    counted: Counted
    placing: CudaSettings = field(default_factory=CudaSettings)
