"""Which programs are followed, as the kernel is told? A table of them, and marks by which most others are told apart at once."""

from __future__ import annotations

import threading

import numpy as np

from ...bpf.abi.requests import FOLLOWED
from ...bpf.maps import BpfMap
from ...bpf.run_once import run_once


class FollowedTable:
    """The table, by pid. Safe to use from several threads."""

    def __init__(self, table: BpfMap, mark: int) -> None:
        """`mark` is the program that marks a program's number."""
        self._table = table
        self._mark = mark
        self._lock = threading.Lock()
        self._marked: dict[int, int] = {}
        """Exec ids by pid."""

    def put(self, pid: int, value: np.ndarray) -> None:
        """Have the kernel follow the program that runs under a pid."""
        with self._lock:
            before, exec_id = self._marked.get(pid), int(value["exec_id"])
            if before != exec_id:
                run_once(self._mark, exec_id, 1)
                self._marked[pid] = exec_id
            self._table.put(_key(pid), value.tobytes())
            if before is not None and before != exec_id:
                run_once(self._mark, before, -1 & _WORD)

    def get(self, pid: int) -> np.void | None:
        """Return what stands there, which the kernel writes too."""
        known = self._table.get(_key(pid))
        return None if known is None else np.frombuffer(known, FOLLOWED)[0]

    def remove(self, pid: int, exec_id: int) -> None:
        """Have a program followed no more, unless another one runs under its pid."""
        with self._lock:
            if self._marked.get(pid) != exec_id:
                return
            del self._marked[pid]
            self._table.delete(_key(pid))
            run_once(self._mark, exec_id, -1 & _WORD)


_WORD = (1 << 64) - 1


def _key(pid: int) -> bytes:
    return pid.to_bytes(4, "little")
