"""What has been added to a table of NCCL's rows since it was last read?"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from ...bpf.abi.nccl import NCCL_ROW_KEY
from ...bpf.abi.rows import ROW
from ...bpf.maps import BpfMap, possible_cpus
from ...components.counting.owners import are_of
from ...discovery.program_id import ProgramId
from ...signals.structs import Frozen

_Sums = npt.NDArray[np.uint64]
_COLUMNS = 3


class NcclDelta(Frozen):
    """What one row grew by. Fields as in ebpf/abi/nccl.h."""

    tgid: int
    exec_id: int
    comm: int
    rank: int
    ranks: int
    family: int
    function: int
    datatype: int
    reduction: int
    bucket: int
    grouped: int
    alone: int
    pad: int
    count: int
    bytes: int
    ns: int

    @property
    def program(self) -> ProgramId:
        return ProgramId(self.tgid, self.exec_id)


class NcclRows:
    """Reads one table of rows, remembering what it saw."""

    def __init__(self, table: BpfMap) -> None:
        self._table = table
        self._seen: dict[bytes, tuple[int, ...]] = {}

    def read(self) -> list[NcclDelta]:
        """Return the rows that grew; those of a read that fails are in the next one."""
        keys, values = self._table.read(NCCL_ROW_KEY, ROW)
        sums: _Sums = values.view(np.uint64).reshape(len(keys), possible_cpus(), _COLUMNS).sum(axis=1, dtype=np.uint64)
        deltas = []
        for key, fields, now in zip(
            keys.view(np.dtype((np.void, NCCL_ROW_KEY.itemsize))).tolist(), keys.tolist(), sums.tolist(), strict=True
        ):
            before = self._seen.get(key, (0, 0, 0))
            if tuple(now) != before:
                self._seen[key] = tuple(now)
                deltas.append(NcclDelta(*fields, *(a - b for a, b in zip(now, before, strict=True))))
        return deltas

    def forget(self, programs: Collection[ProgramId]) -> int:
        """Remove the rows of programs that can add nothing any more, and return how many there were."""
        keys, _ = self._table.read(NCCL_ROW_KEY, ROW)
        gone = keys[are_of(programs, keys)]
        for key in gone.view(np.dtype((np.void, NCCL_ROW_KEY.itemsize))).tolist():
            self._seen.pop(key, None)
        return self._table.delete_many(gone)
