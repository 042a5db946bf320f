"""Which programs has the kernel entries of, what did each lose, and which have ended?

A program has a share of each of the kernel's tables (ebpf/lib/shares.bpf.h). What it does beyond that costs it detail, never a
total, and is told here with its name.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...abi import (
    BUCKET_NONE,
    BUCKET_ZERO,
    DEVICE_UNKNOWN,
    PROGRAM,
    PROGRAM_KEY,
    RUNNING,
    TOTALS,
    Family,
    Loss,
    Table,
)
from ...bpf.iterators import ask_leader
from ...bpf.maps import NO_EXIST
from ...bpf.object import BpfObject
from ...bpf.run_once import run_once
from ...discovery.processes import Began
from ...program_id import ProgramId
from .owners import Removal
from .rows import RowDelta

_log = logging.getLogger(__name__)

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
}
"""The table that was full, or of which a program had its share; of the rest it was none."""
PROFILE_LOST_IN = {Loss.CALLS_FULL: "sampled_threads", Loss.LIVE_FULL: "tensors", Loss.EVENTS_FULL: "samples"}
"""Likewise, of profiles."""


@dataclass(frozen=True, slots=True)
class ProgramLoss:
    """How often something went wrong for one program since it was last asked."""

    program: ProgramId
    event: str
    table: str | None
    count: int


@dataclass(frozen=True, slots=True)
class ProgramState:
    """What the kernel says of a program that it has entries of."""

    began: Began
    comm: str
    parent: int
    is_announced: bool
    ended_s: float | None
    used: tuple[int, ...]
    """Entries by table."""


class Programs:
    """The kernel's table of programs."""

    def __init__(self, bpf: BpfObject) -> None:
        self._programs = bpf.map("programs")
        self._ended = bpf.map("ended")
        self._who_runs = bpf.programs()["who_runs"]
        self._seen: dict[ProgramId, npt.NDArray[np.void]] = {}

    def running(self, pid: int) -> tuple[int, Began] | None:
        """Return which program a process runs now, by its exec id, and when that began; None when it is gone."""
        said = ask_leader(self._who_runs, pid)
        for tgid, exec_id, *began in RUNNING.iter_unpack(said):
            if tgid == pid:
                return exec_id, Began(*began)
        return None

    def meet(self, pid: int) -> None:
        """Have the kernel keep an entry of the program that a process runs, though it has asked nothing of a GPU yet."""
        if (running := self.running(pid)) is None:
            return
        exec_id, began = running
        value = np.zeros((), PROGRAM)
        value["start_ns"], value["executions"], value["is_announced"] = began.start_ns, began.executions, True
        try:
            self._programs.put(np.array([(pid, exec_id)], PROGRAM_KEY).tobytes(), value.tobytes(), NO_EXIST)
        except OSError as e:
            # It is there already, or there is no room, which costs its threads their samplers.
            _log.debug("process %d: no entry for its program: %s", pid, e)

    def state(self, program: ProgramId) -> ProgramState | None:
        """Return what is known of one program."""
        value = self._programs.get(np.array([program], PROGRAM_KEY).tobytes())
        return None if value is None else next(_states(np.frombuffer(value, PROGRAM)))

    def states(self) -> Mapping[ProgramId, ProgramState]:
        """Return what is known of each program, as of now."""
        keys, values = self._programs.read(PROGRAM_KEY, PROGRAM)
        return dict(zip(map(ProgramId._make, keys.tolist()), _states(values), strict=True))

    def read(self) -> tuple[list[RowDelta], list[ProgramLoss]]:
        """Return what was counted in totals only, and what was lost, since the last call."""
        totals: list[RowDelta] = []
        losses: list[ProgramLoss] = []
        keys, values = self._programs.read(PROGRAM_KEY, PROGRAM)
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
                totals.append(_total(program, *TOTALS[at], *(n % (1 << 64) for n in grown)))
        return totals, losses

    def forget(self, programs: Collection[ProgramId]) -> None:
        """Remove programs that have ended and have no other entries any more."""
        for program in programs:
            key = np.array([program], PROGRAM_KEY).tobytes()
            self._programs.delete(key)
            self._ended.delete(key)
            self._seen.pop(program, None)


class SharedTables:
    """The tables of one object that programs share."""

    def __init__(
        self,
        bpf: BpfObject,
        removals: Mapping[Table, Removal],
        states: Callable[[], Mapping[ProgramId, ProgramState]],
    ) -> None:
        self._release_entries = bpf.programs()["release_entries"]
        self._removals = dict(removals)
        self._states = states

    def release_entries(self, table: Table, program: ProgramId, entries: int) -> None:
        """Say that a program's entries were taken out of a table."""
        if entries:
            run_once(self._release_entries, *program, table, entries)

    def forget(self, programs: set[ProgramId]) -> None:
        """Remove whatever programs have that have ended."""
        if not programs:
            return
        states = {program: state for program, state in self._states().items() if program in programs}
        for table, remove in self._removals.items():
            holders = {program for program, state in states.items() if state.used[table]}
            if holders:
                # What each had is forgotten with it.
                self.release_entries(table, _NOBODY, remove(holders))


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


def _states(values: npt.NDArray[np.void]) -> Iterator[ProgramState]:
    # By columns: a program's whole value is large, and there may be thousands.
    columns = (values[field].tolist() for field in _STATE)
    for start_ns, executions, comm, parent, is_announced, ended_ns, used in zip(*columns, strict=True):
        yield ProgramState(
            Began(start_ns, executions),
            comm.decode("utf-8", "replace"),
            parent,
            bool(is_announced),
            ended_ns / 1e9 or None,
            tuple(used),
        )


def _losses(
    program: ProgramId, prefix: str, tables: Mapping[Loss, str], grown: npt.NDArray[np.uint64]
) -> Iterator[ProgramLoss]:
    for number in np.nonzero(grown)[0].tolist():
        loss = Loss(number)
        yield ProgramLoss(program, prefix + loss.name.lower(), tables.get(loss), int(grown[number]))


_NOTHING = np.zeros((), PROGRAM)
_STATE = ("start_ns", "executions", "comm", "parent", "is_announced", "ended_ns", "used")
_GROWING = ("lost", "profile_lost", "totals")
_NOBODY = ProgramId(0, 0)
_DURATION_UNITS = 1 << 30
"""In which durations are counted in buckets, to the second."""
