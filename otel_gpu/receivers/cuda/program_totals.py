"""What was counted of a program in totals only, and what did it lose?

A program has a share of each of the kernel's tables (ebpf/lib/shares.bpf.h). What it does beyond that costs it detail, never a
total, and is told here with its name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...bpf.abi.programs import PROGRAM, TOTALS_OF_API, Loss, Total
from ...bpf.abi.rows import BUCKET_NONE, BUCKET_ZERO, DEVICE_UNKNOWN, KIND_HIP, Family
from ...components.counting.programs import Programs
from ...discovery.program_id import ProgramId
from ...signals.structs import Frozen
from .rows import RowDelta

LOST_IN = {
    Loss.ROWS_FULL: "rows",
    Loss.OVERFLOW_FULL: "overflow",
    Loss.CALLS_FULL: "threads",
    Loss.LIVE_FULL: "live",
    Loss.CAPTURES_FULL: "capturing",
    Loss.EVENTS_FULL: "events",
    Loss.BUSY_FULL: "busy",
    Loss.PINNED_FULL: "pinned",
    Loss.CONTEXTS_FULL: "contexts",
    Loss.GRAPHS_FULL: "graphs",
    Loss.NAMES_FULL: "kernels",
    Loss.PROGRAMS_FULL: "programs",
    Loss.NCCL_ROWS_FULL: "nccl_rows",
    Loss.NCCL_OVERFLOW_FULL: "nccl_overflow",
    Loss.NCCL_COMMS_FULL: "nccl_comms",
    Loss.ARRIVALS_FULL: "nccl_arrivals",
    Loss.NCCL_PENDING_FULL: "nccl_works",
    Loss.RANGES_FULL: "ranges",
}
"""The table that was full, or of which a program had its share; of the rest it was none."""
PROFILE_LOST_IN = {Loss.CALLS_FULL: "sampled_threads", Loss.LIVE_FULL: "tensors", Loss.EVENTS_FULL: "samples"}
"""Likewise, of profiles."""

_TOTALS = tuple(
    (Family[total.name], mark | kind)
    for mark in (0, KIND_HIP)
    for total, following in pairwise([*Total, TOTALS_OF_API])
    for kind in range(following - total)
)
"""What each of a program's totals counts: family and row_key.kind."""


class ProgramLoss(Frozen):
    """How often something went wrong for one program since it was last asked."""

    program: ProgramId
    event: str
    table: str | None
    count: int


class ProgramTotals:
    """Reads what the kernel's table of programs says of each, remembering what it said before."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._seen: dict[ProgramId, npt.NDArray[np.void]] = {}

    def read(self) -> tuple[list[RowDelta], list[ProgramLoss]]:
        """Return what was counted in totals only, and what was lost, since the last call."""
        totals: list[RowDelta] = []
        losses: list[ProgramLoss] = []
        keys, values = self._programs.read()
        for key, now in zip(keys.tolist(), values, strict=True):
            program = ProgramId(*key)
            before = self._seen.get(program, _NOTHING)
            if all(np.array_equal(now[field], before[field]) for field in _GROWING):
                continue
            self._seen[program] = now.copy()
            losses += _losses(program, "", LOST_IN, now["lost"] - before["lost"])
            losses += _losses(program, "profile_", PROFILE_LOST_IN, now["profile_lost"] - before["profile_lost"])
            for at in np.nonzero(now["totals"]["count"] - before["totals"]["count"])[0].tolist():
                grown = (a - b for a, b in zip(now["totals"][at].tolist(), before["totals"][at].tolist(), strict=True))
                totals.append(_total(program, *_TOTALS[at], *(n % (1 << 64) for n in grown)))
        return totals, losses

    def forget(self, programs: Collection[ProgramId]) -> None:
        """Drop programs that have ended, and are in the table no longer."""
        for program in programs:
            self._seen.pop(program, None)


def _total(program: ProgramId, family: Family, kind: int, count: int, sum_a: int, sum_b: int) -> RowDelta:
    """Return what a program's total grew by, as a row: where there are buckets, all of it stands in that of the mean.

    Count and sum are exact then, and the buckets as near as they can be.
    """
    bucket = BUCKET_NONE
    if family is Family.COPY:
        bucket = _bucket(sum_a / count)
    elif family in (Family.WAIT, Family.IDLE, Family.ELAPSED):
        bucket = _bucket(sum_a / count / 1e9 * _DURATION_UNITS)
    return RowDelta(*program, 0, 0, family, DEVICE_UNKNOWN, kind, 0, bucket, BUCKET_NONE, count, sum_a, sum_b)


def _bucket(value: float) -> int:
    """Return the bucket as the kernel numbers it (ebpf/abi/)."""
    return (math.ceil(value) - 1).bit_length() + 1 if value > 0 else BUCKET_ZERO


def _losses(
    program: ProgramId, prefix: str, tables: Mapping[Loss, str], grown: npt.NDArray[np.uint64]
) -> Iterator[ProgramLoss]:
    for number in np.nonzero(grown)[0].tolist():
        loss = Loss(number)
        yield ProgramLoss(program, prefix + loss.name.lower(), tables.get(loss), int(grown[number]))


_NOTHING = np.zeros((), PROGRAM)
_GROWING = ("lost", "profile_lost", "totals")
_DURATION_UNITS = 1 << 30
"""In which durations are counted in buckets, to the second."""
