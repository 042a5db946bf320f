"""Which rows can grow no more, though their program runs? Of graphs that were changed, of kernels whose handle is another's.

A program that changes a graph at every step, or loads and unloads kernels for weeks, would fill its share of the table with
them. They are taken out when they have not grown from one look to the next: whoever was about to count in one has done so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...bpf.abi.programs import CONTEXT_KEY, KERNEL
from ...bpf.abi.rows import Family
from ...bpf.maps import BpfMap
from ...discovery.program_id import ProgramId
from .rows import RowReader

_Mask = npt.NDArray[np.bool_]
_FEW = 256
"""So many rows of such kinds, of all programs, are not worth looking."""


class DeadRows:
    """The rows of a table that are about to be taken out. Owned by one thread."""

    def __init__(
        self, rows: RowReader, graphs: BpfMap, kernels: BpfMap, release_entries: Callable[[ProgramId, int], None]
    ) -> None:
        """`graphs` has the versions of executable graphs, `kernels` the generations of handles."""
        self._rows = rows
        self._graphs = graphs
        self._kernels = kernels
        self._release_entries = release_entries
        self._doomed: dict[bytes, bytes] = {}
        """What the dead ones counted when they were found."""

    def sweep(self) -> None:
        """Take out the rows that were dead at the last sweep and have not grown since."""
        keys, sums = self._rows.last()
        dead = np.nonzero(self._of_graphs(keys) | self._of_kernels(keys))[0]
        found = {keys[at].tobytes(): sums[at].tobytes() for at in dead.tolist()}
        gone = {key for key, counted in found.items() if self._doomed.get(key) == counted}
        self._doomed = {key: counted for key, counted in found.items() if key not in gone}
        taken: Counter[ProgramId] = Counter()
        for program in self._rows.remove(gone):
            taken[program] += 1
        for program, rows in taken.items():
            self._release_entries(program, rows)

    def _of_graphs(self, keys: npt.NDArray[np.void]) -> _Mask:
        mine = keys["family"] == Family.GRAPH_LAUNCH
        if np.count_nonzero(mine) <= _FEW:
            return np.zeros(len(keys), bool)
        graphs, versions = self._graphs.read(CONTEXT_KEY, "<u8")
        # What no version is known of counts under the graph itself.
        live = np.concatenate([graphs["context"], versions])
        dead: _Mask = mine & (keys["subject"] != 0) & ~np.isin(keys["subject"], live)
        return dead

    def _of_kernels(self, keys: npt.NDArray[np.void]) -> _Mask:
        # A handle that was another kernel before has rows of several generations.
        mine = keys["family"] == Family.LAUNCH
        if np.count_nonzero(mine & (keys["function"] > 0)) <= _FEW:
            return np.zeros(len(keys), bool)
        handles, kernels = self._kernels.read(CONTEXT_KEY, KERNEL)
        present = np.empty(len(handles), _GENERATION)
        present[_HANDLE] = handles
        present["generation"] = kernels["generation"] % (1 << 16)
        here = np.empty(len(keys), _GENERATION)
        here["tgid"], here["exec_id"] = keys["tgid"], keys["exec_id"]
        here["context"], here["generation"] = keys["subject"], keys["function"]
        known = np.isin(here[_HANDLE], present[_HANDLE])
        dead: _Mask = mine & (keys["subject"] != 0) & known & ~np.isin(here, present)
        return dead


_HANDLE = list(CONTEXT_KEY.names or ())
_GENERATION = np.dtype([*CONTEXT_KEY.descr, ("generation", "<u8")])
