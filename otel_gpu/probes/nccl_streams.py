"""By which functions does the host see that a stream is done? CUDA's driver and HIP have the same, with the same arguments.

Where a capture ends matters, for what was captured is on no stream.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..sandbox.elf import ElfFile
from .attach import PlannedProbe, plan_symbol
from .sites import SiteRules

_CUDA: dict[tuple[str, ...], tuple[str, str | None]] = {
    ("cuStreamSynchronize", "cuStreamQuery"): ("stream_wait", "waited"),
    ("cuEventSynchronize", "cuEventQuery"): ("event_wait", "waited"),
    ("cuEventRecord", "cuEventRecordWithFlags"): ("event_records", "event_recorded"),
    ("cuEventDestroy", "cuEventDestroy_v2"): ("event_ends", None),
    ("cuStreamDestroy", "cuStreamDestroy_v2"): ("stream_ends", None),
    ("cuStreamEndCapture",): ("capture_ends", None),
}
"""Functions, and their programs at entry and return."""
_PER_THREAD = "_ptsz"
"""What those are called besides that take their thread's default stream for none."""


def plan_streams(elf: ElfFile, rules: SiteRules) -> Iterator[PlannedProbe]:
    """Resolve them in a driver, or in HIP's runtime; what cannot be probed has a reason."""
    programs = {
        f"{api}{name.removeprefix('cu')}{suffix}": its
        for names, its in _CUDA.items()
        for name in names
        for api in ("cu", "hip")
        for suffix in ("", _PER_THREAD)
    }
    taken: set[int] = set()
    for symbol in elf.default_exports():
        if symbol.name in programs and symbol.value not in taken:
            taken.add(symbol.value)
            yield plan_symbol(elf, symbol, rules, *programs[symbol.name])
