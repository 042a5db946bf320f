"""What has been added to the kernel's count table since it was last read?"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from ...bpf.abi.rows import COUNTED_ROW, KIND_HIP, ROW_KEY, VALUE_B_BITS
from ...bpf.maps import BpfMap, possible_cpus
from ...components.counting.owners import are_of
from ...discovery.program_id import ProgramId
from ...signals.structs import Frozen
from .cardinality import RowCardinality

_Sums = npt.NDArray[np.uint64]


class RowDelta(Frozen):
    """What one row grew by. Fields as in ebpf/abi/."""

    tgid: int
    exec_id: int
    subject: int
    function: int
    family: int
    device: int
    kind: int
    detail: int
    bucket_a: int
    bucket_b: int
    count: int
    sum_a: int
    sum_b: int

    @property
    def program(self) -> ProgramId:
        return ProgramId(self.tgid, self.exec_id)

    @property
    def is_hip(self) -> bool:
        """Whether HIP was asked, and not CUDA."""
        return self.kind & KIND_HIP != 0

    @property
    def what(self) -> int:
        """The copy kind or memory type in `kind`."""
        return self.kind & ~KIND_HIP


def sums_of(values: npt.NDArray[np.void]) -> _Sums:
    """Return count and sums of rows, given by CPU."""
    rows = values.view(np.uint64).reshape(-1, possible_cpus(), 5)
    alike, usual = rows[..., 3], rows[..., 4]
    sums: _Sums = rows[..., :3].sum(axis=1, dtype=np.uint64)
    sums[:, 0] += alike.sum(axis=1, dtype=np.uint64)
    sums[:, 1] += (alike * (usual >> np.uint64(VALUE_B_BITS))).sum(axis=1, dtype=np.uint64)
    sums[:, 2] += (alike * (usual & np.uint64((1 << VALUE_B_BITS) - 1))).sum(axis=1, dtype=np.uint64)
    return sums


class RowReader:
    """Reads one table of rows, remembering what it saw."""

    def __init__(self, table: BpfMap) -> None:
        self._table = table
        self._keys = b""
        self._sums: _Sums = np.zeros((0, 3), np.uint64)
        self.cardinality = RowCardinality()

    def read(self) -> list[RowDelta]:
        """Return the rows that grew; those of a read that fails are in the next one."""
        keys, values = self._table.read(ROW_KEY, COUNTED_ROW)
        sums = sums_of(values)
        raw = keys.tobytes()
        before = self._sums if raw == self._keys else self._align(raw)
        grown = np.nonzero((sums != before).any(axis=1))[0]
        shown, added = self.cardinality.fold(keys[grown], sums[grown] - before[grown])
        deltas = [RowDelta(*key, *delta) for key, delta in zip(shown.tolist(), added.tolist(), strict=True)]
        self._keys, self._sums = raw, sums
        return deltas

    def last(self) -> tuple[npt.NDArray[np.void], _Sums]:
        """Return all rows and what they had counted when they were last read."""
        return np.frombuffer(self._keys, ROW_KEY), self._sums

    def remove(self, rows: Collection[bytes]) -> Iterator[ProgramId]:
        """Remove rows, given by their keys, and yield whose each was that was there."""
        if not rows:
            return
        keys, _ = self.last()
        kept = np.ones(len(keys), bool)
        for at, key in enumerate(keys):
            if key.tobytes() in rows:
                kept[at] = False
                if self._table.delete(key.tobytes()):
                    yield ProgramId(int(key["tgid"]), int(key["exec_id"]))
        self._keys, self._sums = keys[kept].tobytes(), self._sums[kept]

    def forget(self, programs: Collection[ProgramId]) -> int:
        """Remove the rows of programs that can add nothing any more, and return how many there were."""
        keys = np.frombuffer(self._keys, ROW_KEY)
        gone = are_of(programs, keys)
        removed = self._table.delete_many(keys[gone])
        self._keys, self._sums = keys[~gone].tobytes(), self._sums[~gone]
        return removed

    def _align(self, raw: bytes) -> _Sums:
        """Return the previous sums in the order of the new keys, zero where a key is new."""
        size = ROW_KEY.itemsize
        index = {self._keys[at : at + size]: at // size for at in range(0, len(self._keys), size)}
        before: _Sums = np.zeros((len(raw) // size, 3), np.uint64)
        for i in range(len(before)):
            old = index.get(raw[i * size : (i + 1) * size])
            if old is not None:
                before[i] = self._sums[old]
        return before
