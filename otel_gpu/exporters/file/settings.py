"""What can be set of how everything ends up in files?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from ..settings import Histograms, Temporality


@dataclass(frozen=True, slots=True)
class RotationSettings:
    """How a file is kept small, as the Collector's file exporter has it."""

    max_megabytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 100
    """A file that would become larger is renamed, and a new one begun."""
    max_days: Annotated[int, msgspec.Meta(ge=0, le=36_500)] = 0
    """Renamed files that are older are removed; 0 keeps them whatever their age."""
    max_backups: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 100
    """Renamed files that are kept, the newest; 0 keeps all."""
    localtime: bool = False
    """Local time in the names of renamed files, instead of UTC."""


@dataclass(frozen=True, slots=True)
class FileSettings:
    """OTLP/JSON lines on disk."""

    path: str
    """The directory that gets `metrics.jsonl`, `traces.jsonl` and `profiles.jsonl`."""
    temporality: Temporality = "cumulative"
    """Of counters and histograms: since the start, or since the last export."""
    histograms: Histograms = "exponential"
    """`explicit` for what does not understand exponential ones, as Prometheus without native histograms: bounds are powers of two."""
    append: bool = True
    """Go on where a file of an earlier run ends, or empty it first."""
    rotation: RotationSettings | None = None
    """How they are kept small; left out, they grow."""
