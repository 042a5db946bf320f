"""What did queue pairs do since the last look, and whose is it? Counts of the kernel become measurements.

A pair's numbers stand for its device, its port and the other side, as they were when they were read; its own number stands there for
those that are shown by it. What is read are totals since a pair was made: deltas are told, so that no counter
falls whatever becomes of a pair.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ...bpf.abi.rdma import QPN_NONE, RdmaOperation, RdmaRowKind, RdmaUnmatched
from ...bpf.abi.rows import BUCKET_ZERO
from ...components.counting.buckets import DURATION_SHIFT
from ...discovery.program_id import ProgramId
from ...signals.metrics import Attributes, AttributeValue, Buckets, Measurement, MetricSpec, Resource, attributes
from ...signals.structs import Frozen
from . import metrics as m

_Array = npt.NDArray[np.void]
_Numbers = npt.NDArray[np.int64]
OwnGid = Callable[[str, int, int], str]
"""Returns an entry of a port's table, as text, by device, port and place."""

RTS = 3
"""IBV_QPS_RTS: a queue pair that may send."""
STATES = ("reset", "init", "rtr", "rts", "sqd", "sqe", "err")
STATUSES = [
    "success",
    "loc_len_err",
    "loc_qp_op_err",
    "loc_eec_op_err",
    "loc_prot_err",
    "wr_flush_err",
    "mw_bind_err",
    "bad_resp_err",
    "loc_access_err",
    "rem_inv_req_err",
    "rem_access_err",
    "rem_op_err",
    "retry_exc_err",
    "rnr_retry_exc_err",
    "loc_rdd_viol_err",
    "rem_inv_rd_req_err",
    "rem_abort_err",
    "inv_eecn_err",
    "inv_eec_state_err",
    "fatal_err",
    "resp_timeout_err",
    "general_err",
    "tm_err",
    "tm_rndv_incomplete",
]
EVENTS = [
    "cq_err",
    "qp_fatal",
    "qp_req_err",
    "qp_access_err",
    "comm_est",
    "sq_drained",
    "path_mig",
    "path_mig_err",
    "device_fatal",
    "port_active",
    "port_err",
    "lid_change",
    "pkey_change",
    "sm_change",
    "srq_err",
    "srq_limit_reached",
    "qp_last_wqe_reached",
    "client_reregister",
    "gid_change",
    "wq_fatal",
]


class RowDelta(Frozen):
    """How much a row grew."""

    program: ProgramId
    id: int
    kind: RdmaRowKind
    operation: int
    bucket: int
    count: int
    sum: int


def program_of(entry: np.void) -> ProgramId:
    """Return whose an entry, or its key, is."""
    return ProgramId(int(entry["tgid"]), int(entry["exec_id"]))


def name_of(names: Sequence[str], number: int) -> str:
    """Return a name by its number; the number where there is none."""
    return names[number] if number < len(names) else str(number)


class PairTotals:
    """What pairs had done when they were last read."""

    def __init__(self) -> None:
        self._ids: _Numbers = np.zeros(0, np.int64)
        self._numbers: _Numbers = np.zeros((0, 2 + 2 * len(RdmaOperation)), np.int64)

    def since(self, pairs: _Array) -> _Numbers:
        """Return what each did since: posted, awaited, operations, bytes. `pairs` are in the order of their ids."""
        ids = pairs["id"].astype(np.int64)
        now = np.column_stack(
            [
                pairs["posted"],
                pairs["awaited"],
                pairs["operations"].reshape(len(pairs), len(RdmaOperation)),
                pairs["bytes"].reshape(len(pairs), len(RdmaOperation)),
            ]
        ).astype(np.int64)
        before = np.zeros_like(now)
        if self._ids.size and ids.size:
            at = np.minimum(np.searchsorted(self._ids, ids), self._ids.size - 1)
            same = self._ids[at] == ids
            before[same] = self._numbers[at[same]]
        # What was read between two additions of one call may seem less for a while.
        self._ids, self._numbers = ids, np.maximum(now, before)
        grown: _Numbers = np.maximum(now - before, 0)
        return grown

    def forget(self, ids: Collection[int]) -> None:
        """Drop pairs that are gone: none has their ids again."""
        kept = ~np.isin(self._ids, np.array(sorted(ids), np.int64))
        self._ids, self._numbers = self._ids[kept], self._numbers[kept]


class RdmaSums:
    """Adds up one interval."""

    def __init__(self, shown: Collection[int], own_gid: OwnGid) -> None:
        """Pairs whose ids are `shown` have their numbers."""
        self._shown = shown
        self._own_gid = own_gid
        self._counts: Counter[tuple[ProgramId, MetricSpec, Attributes]] = Counter()
        self._histograms: dict[tuple[ProgramId, MetricSpec, Attributes], Buckets] = {}
        self._sums: dict[tuple[ProgramId, MetricSpec, Attributes], int] = defaultdict(int)
        self._labels: dict[int, dict[str, AttributeValue | None]] = {}
        self._pairs: dict[int, np.void] = {}

    def add_pairs(self, pairs: _Array, grown: _Numbers) -> None:
        """Take in what pairs did."""
        self._all = pairs
        for at in np.flatnonzero(grown.any(axis=1)).tolist():
            pair, delta = pairs[at], grown[at].tolist()
            labels, program = self._label(pair), program_of(pair["key"])
            if delta[1]:
                self._counts[program, m.RECEIVES_POSTED, _without(labels)] += delta[1]
            for operation in RdmaOperation:
                count, size = delta[2 + operation], delta[2 + len(RdmaOperation) + operation]
                if count or size:
                    direction = "receive" if operation is RdmaOperation.READ else "transmit"
                    attrs = attributes(
                        {**labels, "rdma.operation": operation.name.lower(), "network.io.direction": direction}
                    )
                    self._counts[program, m.MESSAGES, attrs] += count
                    self._counts[program, m.IO, attrs] += size

    def add_row(self, row: RowDelta) -> None:
        """Take in a row that grew."""
        labels = self._label_of(row.id)
        match row.kind:
            case RdmaRowKind.LATENCY | RdmaRowKind.SERVICE:
                if not labels.get("rdma.loopback"):
                    spec = m.OPERATION_DURATION if row.kind is RdmaRowKind.LATENCY else m.SERVICE_DURATION
                    attrs = attributes({**labels, "rdma.operation": name_of(_OPERATIONS, row.operation)})
                    self._bucket(row, spec, attrs)
            case RdmaRowKind.RECEIVED:
                operation = "receive_imm" if row.operation else "receive"
                attrs = attributes({**labels, "rdma.operation": operation, "network.io.direction": "receive"})
                self._counts[row.program, m.MESSAGES, attrs] += row.count
                self._counts[row.program, m.IO, attrs] += row.sum
            case RdmaRowKind.ERROR:
                attrs = _without(labels, **{"rdma.completion.status": name_of(STATUSES, row.bucket)})
                self._counts[row.program, m.COMPLETION_ERRORS, attrs] += row.count
            case RdmaRowKind.UNMATCHED:
                reason = name_of(_UNMATCHED, row.bucket)
                self._counts[row.program, m.UNMATCHED, attributes({"otel_gpu.reason": reason})] += row.count
            case RdmaRowKind.STATE:
                attrs = _without(labels, **{"rdma.qp.state": state_name(row.bucket)})
                self._counts[row.program, m.QP_STATE_CHANGES, attrs] += row.count
            case RdmaRowKind.ASYNC:
                attrs = attributes({"rdma.async.event": name_of(EVENTS, row.bucket)})
                self._counts[row.program, m.ASYNC_EVENTS, attrs] += row.count
            case RdmaRowKind.REGISTERED:
                self._counts[row.program, m.MR_REGISTERED, ()] += row.sum
            case RdmaRowKind.DEREGISTERED:
                self._counts[row.program, m.MR_REGISTERED, ()] -= row.sum
            case RdmaRowKind.REGISTRATION:
                self._counts[row.program, m.MR_REGISTRATIONS, ()] += row.count
                self._bucket(row, m.MR_DURATION, ())
            case RdmaRowKind.REFUSED:
                self._counts[row.program, m.MR_ERRORS, ()] += row.count

    def measurements(self, resource: Callable[[ProgramId], Resource]) -> Iterator[Measurement]:
        """Yield all of it."""
        for (program, spec, attrs), value in self._counts.items():
            if value:
                yield Measurement(resource(program), spec, attrs, value)
        for key, buckets in self._histograms.items():
            program, spec, attrs = key
            yield Measurement(
                resource(program), spec, attrs, Buckets(buckets.counts, self._sums[key] / 1e9, buckets.zero_count)
            )

    def _bucket(self, row: RowDelta, spec: MetricSpec, attrs: Attributes) -> None:
        key = row.program, spec, attrs
        buckets = self._histograms.setdefault(key, Buckets())
        if row.bucket == BUCKET_ZERO:
            buckets.zero_count += row.count
        else:
            index = row.bucket - DURATION_SHIFT
            buckets.counts[index] = buckets.counts.get(index, 0) + row.count
        self._sums[key] += row.sum

    def _label_of(self, number: int) -> dict[str, AttributeValue | None]:
        if number in self._labels or not number:
            return self._labels.get(number, {})
        ids = self._all["id"]
        at = int(np.searchsorted(ids, number))
        if at >= len(ids) or ids[at] != number:
            return {}
        return self._label(self._all[at])

    def _label(self, pair: np.void) -> dict[str, AttributeValue | None]:
        number = int(pair["id"])
        if number in self._labels:
            return self._labels[number]
        labels = self._labels[number] = labels_of(pair, self._own_gid, is_shown=number in self._shown)
        return labels


def labels_of(pair: np.void, own_gid: OwnGid, *, is_shown: bool) -> dict[str, AttributeValue | None]:
    """Return the device, the port and the other side of a pair, as far as they are known; its number where that is shown."""
    if int(pair["key"]["qpn"]) == QPN_NONE:
        return {}
    device = device_of(pair)
    port = int(pair["port"]) or None
    labels: dict[str, AttributeValue | None] = {"rdma.device": device, "rdma.port": port}
    if comm := int(pair["comm"]):
        labels["nccl.comm.hash"] = f"{comm:016x}"
    if pair["has_gid"]:
        gid = ipaddress.IPv6Address(pair["gid"].tobytes())
        if gid.ipv4_mapped is not None:
            labels["network.peer.address"] = str(gid.ipv4_mapped)
        else:
            labels["rdma.remote.gid"] = str(gid)
        if int(pair["remote_qpn"]) == int(pair["key"]["qpn"]) and device and port:
            own = own_gid(device, port, int(pair["gid_index"]))
            if own and own.replace(":", "") == pair["gid"].tobytes().hex():
                labels["rdma.loopback"] = True
    if is_shown:
        labels["rdma.local.qpn"] = int(pair["key"]["qpn"])
        labels["rdma.remote.qpn"] = int(pair["remote_qpn"]) or None
    return labels


def device_of(pair: np.void) -> str | None:
    """Return the name of a pair's device; None where it is not known, or is none."""
    name = pair["device"].decode("ascii", "replace")
    return name if name and name.isprintable() and len(name) <= 64 else None


def state_name(number: int) -> str:
    """Return how a state is called."""
    return STATES[number] if number < len(STATES) else "unknown"


def levels(
    pairs: _Array, shown: Collection[int], windows: Mapping[ProgramId, int], own_gid: OwnGid
) -> Counter[tuple[ProgramId, MetricSpec, Attributes]]:
    """Return how many pairs there are by state, and what is under way in those that are followed.

    Pairs whose ids are `shown` have their numbers. `windows` has the present window of the programs whose completions are looked at
    now.
    """
    found: Counter[tuple[ProgramId, MetricSpec, Attributes]] = Counter()
    pairs = pairs[pairs["key"]["qpn"] != QPN_NONE]
    where = ("device", "port")
    # A process may have a hundred thousand, few of which differ in what is told.
    firsts, kinds = _alike(pairs, [pairs[field] for field in (*where, "state")])
    for pair, count in zip(pairs[firsts], np.bincount(kinds).tolist(), strict=True):
        here = {"rdma.device": device_of(pair), "rdma.port": int(pair["port"]) or None}
        state = attributes({**here, "rdma.qp.state": state_name(int(pair["state"]))})
        found[program_of(pair["key"]), m.QP_STATE, state] += count
    pairs = pairs[pairs["is_followed"] != 0]
    each = np.where(np.isin(pairs["id"], np.array(sorted(shown), np.uint64)), pairs["id"], 0)
    firsts, kinds = _alike(pairs, [each, *(pairs[field] for field in (*where, "comm", "has_gid", "gid", "window"))])
    in_flight = np.zeros(len(firsts), np.int64)
    np.add.at(in_flight, kinds, np.maximum(pairs["posted"].astype(np.int64) - pairs["tail"].astype(np.int64), 0))
    for pair, count in zip(pairs[firsts], in_flight.tolist(), strict=True):
        program = program_of(pair["key"])
        if windows.get(program) == int(pair["window"]):
            labels = labels_of(pair, own_gid, is_shown=int(pair["id"]) in shown)
            found[program, m.QP_INFLIGHT, _without(labels)] += count
    return found


def _alike(pairs: _Array, values: Sequence[npt.NDArray[np.generic]]) -> tuple[list[int], npt.NDArray[np.intp]]:
    """Return the places of the first of each kind, which is one process's pairs of the same values, and each one's kind."""
    if not len(pairs):
        return [], np.empty(0, np.intp)
    columns = [pairs["key"]["tgid"], pairs["key"]["exec_id"], *values]
    as_bytes = [np.ascontiguousarray(column).view(np.uint8).reshape(len(pairs), -1) for column in columns]
    kinds: dict[bytes, int] = {}
    firsts: list[int] = []
    numbers = np.empty(len(pairs), np.intp)
    together = np.hstack(as_bytes)
    raw, size = together.tobytes(), together.shape[1]
    for at in range(len(pairs)):
        numbers[at] = kinds.setdefault(raw[at * size : (at + 1) * size], len(firsts))
        if len(kinds) > len(firsts):
            firsts.append(at)
    return firsts, numbers


def connected(pairs: _Array) -> _Array:
    """Return the pairs that are ready to send."""
    ready: _Array = pairs[pairs["state"] == RTS]
    return ready


def _without(labels: Mapping[str, AttributeValue | None], **more: AttributeValue) -> Attributes:
    """Return what tells pairs apart, without what only their work has."""
    return attributes({name: value for name, value in labels.items() if name != "rdma.loopback"}, **more)


_OPERATIONS = [operation.name.lower() for operation in RdmaOperation]
_UNMATCHED = [reason.name.lower() for reason in RdmaUnmatched]
