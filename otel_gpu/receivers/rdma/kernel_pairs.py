"""What does the kernel add to what was seen of queue pairs? The state and the other side of those that are older than the agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from ...bpf.abi.rdma import QPN_NONE, STATE_UNKNOWN
from ...discovery.program_id import ProgramId
from ...signals.metrics import Attributes, MetricSpec, attributes
from . import metrics as m
from .netlink import KernelPair
from .sums import device_of, state_name

_Array = npt.NDArray[np.void]


class KernelPairs:
    """The queue pairs of some programs. A number is one queue pair's on a device, whatever context it was made by."""

    def __init__(self, programs: Mapping[int, ProgramId], pairs: Iterable[KernelPair]) -> None:
        """`programs` by their processes."""
        self._programs = programs
        self._pairs = {(pair.pid, pair.device, pair.qpn): pair for pair in pairs if pair.pid in programs}

    def complete(self, live: _Array, gone: _Array) -> tuple[_Array, list[tuple[ProgramId, KernelPair]]]:
        """Return the pairs that were met, with what was not seen of them, and those that were not met.

        `gone` are those that were destroyed since the last look.
        """
        if not self._pairs:
            return live, []
        completed = live.copy()
        met = {key for pair in gone if (key := _key(pair)) is not None}
        for pair in completed:
            key = _key(pair)
            if key is None:
                continue
            met.add(key)
            program = int(pair["key"]["tgid"]), int(pair["key"]["exec_id"])
            known = self._pairs.get(key)
            if known is None or self._programs[known.pid] != program:
                continue
            if int(pair["state"]) == STATE_UNKNOWN:
                pair["state"] = min(known.state, STATE_UNKNOWN)
            if not pair["remote_qpn"]:
                pair["remote_qpn"] = known.remote_qpn
            if not pair["port"]:
                pair["port"] = known.port if known.port < 256 else 0
        return completed, [(self._programs[k[0]], pair) for k, pair in self._pairs.items() if k not in met]


def levels_of_kernel(
    unmet: Collection[tuple[ProgramId, KernelPair]],
) -> Counter[tuple[ProgramId, MetricSpec, Attributes]]:
    """Return how many pairs there are by state, of those that have done nothing since the agent is here."""
    found: Counter[tuple[ProgramId, MetricSpec, Attributes]] = Counter()
    for program, pair in unmet:
        attrs = {"rdma.device": pair.device, "rdma.port": pair.port or None, "rdma.qp.state": state_name(pair.state)}
        found[program, m.QP_STATE, attributes(attrs)] += 1
    return found


def _key(pair: np.void) -> tuple[int, str, int] | None:
    device = device_of(pair)
    qpn = int(pair["key"]["qpn"])
    return None if device is None or qpn == QPN_NONE else (int(pair["key"]["tgid"]), device, qpn)
