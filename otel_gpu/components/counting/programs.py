"""Which programs has the kernel entries of, and which have ended?

A program has a share of each of the kernel's tables (ebpf/lib/shares.bpf.h).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from ...bpf.abi.programs import PROGRAM, PROGRAM_KEY, RUNNING, Table
from ...bpf.iterators import ask_all, ask_leader
from ...bpf.maps import NO_EXIST
from ...bpf.object import BpfObject
from ...bpf.records import struct_of
from ...bpf.run_once import run_once
from ...discovery.processes import Began
from ...discovery.program_id import ProgramId
from ...signals.structs import Frozen
from .owners import Removal

_log = logging.getLogger(__name__)
_RUNNING = struct_of(RUNNING)


class ProgramState(Frozen):
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

    def running(self, pid: int) -> tuple[int, Began] | None:
        """Return which program a process runs now, by its exec id, and when that began; None when it is gone."""
        said = ask_leader(self._who_runs, pid)
        for tgid, exec_id, *began in _RUNNING.iter_unpack(said):
            if tgid == pid:
                return exec_id, Began(*began)
        return None

    def all_running(self) -> dict[int, int]:
        """Return the exec id of the program that each process runs now, by pid."""
        return {pid: exec_id for pid, exec_id, *_ in _RUNNING.iter_unpack(ask_all(self._who_runs))}

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

    def entries(self, table: Table, program: ProgramId) -> int:
        """Return how many entries of a table a program has."""
        state = self.state(program)
        return 0 if state is None else state.used[table]

    def states(self) -> Mapping[ProgramId, ProgramState]:
        """Return what is known of each program, as of now."""
        keys, values = self.read()
        return dict(zip(map(ProgramId._make, keys.tolist()), _states(values), strict=True))

    def read(self) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
        """Return all entries, as `abi.PROGRAM_KEY` and `abi.PROGRAM`."""
        return self._programs.read(PROGRAM_KEY, PROGRAM)

    def forget(self, programs: Collection[ProgramId]) -> None:
        """Remove programs that have ended and have no other entries any more."""
        for program in programs:
            key = np.array([program], PROGRAM_KEY).tobytes()
            self._programs.delete(key)
            self._ended.delete(key)


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


_STATE = ("start_ns", "executions", "comm", "parent", "is_announced", "ended_ns", "used")
_NOBODY = ProgramId(0, 0)
