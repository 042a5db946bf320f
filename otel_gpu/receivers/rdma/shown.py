"""Which queue pairs are shown by their numbers? The busiest ones of each process, so that there are not too many series.

A pair keeps its number while it lives, so that its series say all that it does, not what it did whenever it was among the busiest.
One that becomes busier later takes the place of the least busy one, whose series stand still from then on; a process never
gets more than 2 K numbers in its life.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from ...bpf.abi.rdma import QPN_NONE
from ...discovery.program_id import ProgramId
from ...signals.structs import Record

_LIFETIME = 2
_DISPLACE = 2
"""How many times as much a pair must have posted to take another's place."""

_Pairs = npt.NDArray[np.void]


class _Shown(Record):
    """Of one program."""

    now: set[int] = msgspec.field(default_factory=set)
    """The pairs that have a number, by their ids."""
    ever: set[tuple[bytes, int, int]] = msgspec.field(default_factory=set)
    """What was ever shown: device, number and the other side's, which a later pair may have again."""


class ShownPairs:
    """Chooses them, at each look at all pairs."""

    def __init__(self, most: int) -> None:
        """Show `most` of a program at a time."""
        self._most = most
        self._programs: dict[ProgramId, _Shown] = {}

    @property
    def ids(self) -> frozenset[int]:
        """The pairs that have a number now."""
        return frozenset(number for shown in self._programs.values() for number in shown.now)

    def choose(self, pairs: _Pairs, worked: npt.NDArray[np.intp]) -> None:
        """Choose anew. `pairs` are all that there are, in the order of their ids; those at `worked` did something since the last look."""
        if not self._most:
            return
        for program, busiest in self._busiest(pairs[worked]):
            shown = self._programs.setdefault(program, _Shown())
            work = _work_of(pairs, shown.now)
            for pair in busiest:
                self._offer(shown, work, pair)
            shown.now = set(work)

    def forget(self, programs: Collection[ProgramId]) -> None:
        """Drop programs that have ended."""
        for program in programs:
            self._programs.pop(program, None)

    def _busiest(self, worked: _Pairs) -> Iterator[tuple[ProgramId, _Pairs]]:
        """Yield each program with its busiest pairs, in that order. What found no room is no pair."""
        worked = worked[worked["key"]["qpn"] != QPN_NONE]
        keys = worked["key"]
        worked = worked[np.lexsort((worked["id"], -_work(worked), keys["exec_id"], keys["tgid"]))]
        owners = worked["key"][["tgid", "exec_id"]]
        for same in np.split(worked, np.flatnonzero(owners[1:] != owners[:-1]) + 1):
            if len(same):
                yield ProgramId(int(same[0]["key"]["tgid"]), int(same[0]["key"]["exec_id"])), same[: self._most]

    def _offer(self, shown: _Shown, work: dict[int, int], pair: np.void) -> None:
        number, its = int(pair["id"]), int(_work(pair))
        name = bytes(pair["device"]), int(pair["key"]["qpn"]), int(pair["remote_qpn"])
        if number in work or (name not in shown.ever and len(shown.ever) >= _LIFETIME * self._most):
            return
        if len(work) >= self._most:
            weakest = min(work, key=lambda one: (work[one], -one))
            if its < _DISPLACE * max(work[weakest], 1):
                return
            del work[weakest]
        work[number] = its
        shown.ever.add(name)


def _work(pairs: _Pairs | np.void) -> npt.NDArray[np.int64]:
    """Return how much each has posted in its life, to send and to receive."""
    return pairs["posted"].astype(np.int64) + pairs["awaited"].astype(np.int64)


def _work_of(pairs: _Pairs, numbers: Collection[int]) -> dict[int, int]:
    """Return the same of some, by their ids, as far as they are still there."""
    found = pairs[np.isin(pairs["id"], np.array(sorted(numbers), np.uint64))]
    return dict(zip(found["id"].tolist(), _work(found).tolist(), strict=True))
