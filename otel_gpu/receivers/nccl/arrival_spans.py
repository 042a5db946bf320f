"""Which span is a rank's arrival at a collective? All ranks' spans of one collective are one trace, whatever host they are on."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache

from ...probes.nccl import HOOKS
from ...signals.metrics import Attributes, Resource, attributes
from ...signals.spans import SPAN_ID_BYTES, TRACE_ID_BYTES, Span, SpanContext
from ...signals.telemetry_spans import NCCL_COLLECTIVE
from .arrivals import Arrival
from .names import datatype_name, reduction_name
from .sums import comm_attributes

_NO_ROOT = -1


def span_of(arrival: Arrival, resource: Resource, wall_ns: int, now_ns: int) -> Span:
    """Return the span; `wall_ns` is what the wall clock is ahead of the monotonic one, which says `now_ns`."""
    end_ns = arrival.returned_ns or now_ns
    common = _common(
        arrival.comm,
        arrival.rank,
        arrival.ranks,
        arrival.function,
        arrival.elements,
        arrival.datatype,
        arrival.reduction,
        arrival.root,
        not arrival.returned_ns,
    )
    return Span(
        resource,
        NCCL_COLLECTIVE.name,
        SpanContext(_trace_id(arrival.comm, arrival.sequence), _span_id()),
        arrival.arrived_ns + wall_ns,
        max(end_ns, arrival.arrived_ns) + wall_ns,
        attributes=(*common, ("nccl.sequence", arrival.sequence)),
    )


@lru_cache(maxsize=4096)
def _common(
    comm: int,
    rank: int,
    ranks: int,
    function: int,
    elements: int,
    datatype: int,
    reduction: int,
    root: int,
    in_flight: bool,
) -> Attributes:
    """Return what collectives of one kind have in common: a training loop's come again and again."""
    # `nccl.sequence`, which is added, comes last.
    return attributes(
        {
            **comm_attributes(comm, rank, ranks),
            "nccl.collective": HOOKS[function].collective,
            "nccl.count": elements if elements < 1 << 63 else None,
            "nccl.datatype": datatype_name(datatype),
            "nccl.in_flight": in_flight or None,
            "nccl.reduction": reduction_name(reduction),
            "nccl.root": None if root == _NO_ROOT else root,
        }
    )


def _trace_id(comm: int, sequence: int) -> bytes:
    data = comm.to_bytes(8, "little") + sequence.to_bytes(8, "little")
    return hashlib.blake2b(data, digest_size=TRACE_ID_BYTES, person=b"nccl").digest()


def _span_id() -> bytes:
    # All zeros is no id.
    return os.urandom(SPAN_ID_BYTES - 1) + b"\1"
