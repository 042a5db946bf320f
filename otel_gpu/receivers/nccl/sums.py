"""What do the kernel's rows of NCCL mean? Rows folded into measurements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from ...bpf.abi.nccl import NCCL_UNKNOWN_RANK, NcclFamily
from ...bpf.abi.rows import BUCKET_NONE, BUCKET_ZERO
from ...components.counting.buckets import DURATION_SHIFT
from ...discovery.processes import Process
from ...discovery.program_id import ProgramId
from ...probes.nccl import HOOKS
from ...signals.metrics import Attributes, AttributeValue, Buckets, Measurement, MetricSpec, Resource, attributes
from . import metrics
from .bandwidth import bus_bytes
from .names import ERRORS, HOST_WAIT, UNKNOWN, comm_name, datatype_name, reduction_name
from .rows import NcclDelta

_Key = tuple[Resource, MetricSpec, Attributes]


def comm_attributes(comm: int, rank: int, ranks: int) -> dict[str, AttributeValue]:
    """Return what says which communicator it is, and whose rank: what is not known is `unknown`."""
    return {
        "nccl.comm.hash": comm_name(comm),
        "nccl.rank": rank if rank != NCCL_UNKNOWN_RANK and ranks > 0 else UNKNOWN,
        "nccl.nranks": ranks if ranks > 0 else UNKNOWN,
    }


class NcclSums:
    """Adds rows up, once an interval."""

    def __init__(self, owner: Callable[[ProgramId], Process]) -> None:
        self._owner = owner
        self._numbers: dict[_Key, int] = defaultdict(int)
        self._histograms: dict[_Key, Buckets] = defaultdict(Buckets)
        self._bandwidths: dict[_Key, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
        """What went through a link, and in how many nanoseconds."""

    def add(self, row: NcclDelta) -> None:
        """Add what a row grew by."""
        resource = self._owner(row.program).resource
        common = comm_attributes(row.comm, row.rank, row.ranks)
        hook = HOOKS[row.function]
        call = {
            **common,
            "nccl.collective": hook.collective,
            "nccl.datatype": datatype_name(row.datatype),
            "nccl.reduction": reduction_name(row.reduction),
        }
        if row.family == NcclFamily.CALLS:
            self._numbers[resource, metrics.CALLS, attributes(call)] += row.count
            self._numbers[resource, metrics.BYTES, attributes(call)] += row.bytes
            if row.bucket != BUCKET_NONE:
                grouped = {**call, "nccl.grouped": True if row.grouped else None}
                self._duration((resource, metrics.ENQUEUE_DURATION, attributes(grouped)), row)
        elif row.family == NcclFamily.DURATIONS:
            attrs = attributes({**call, "nccl.completion": HOST_WAIT})
            self._duration((resource, metrics.DURATION, attrs), row)
            if row.alone and row.ranks > 0:
                key = resource, metrics.BUS_BANDWIDTH, attrs
                through, ns = self._bandwidths[key]
                self._bandwidths[key] = through + bus_bytes(hook.collective, row.bytes, row.ranks), ns + row.ns
        elif row.family == NcclFamily.GROUPS:
            self._duration((resource, metrics.GROUP_DURATION, ()), row)
        elif row.family == NcclFamily.INITS:
            what = {**common, "nccl.function": hook.name}
            self._duration((resource, metrics.INIT_DURATION, attributes(what)), row)
        elif row.family == NcclFamily.ABORTS:
            self._numbers[resource, metrics.ABORTS, attributes(common)] += row.count
        elif row.family == NcclFamily.ERRORS:
            code = ERRORS[row.reduction] if 0 < row.reduction < len(ERRORS) else "_OTHER"
            what = {**common, "nccl.function": hook.name, "error.type": code}
            self._numbers[resource, metrics.ERRORS, attributes(what)] += row.count

    def measurements(self) -> Iterator[Measurement]:
        """Yield what was added, one measurement a series."""
        yield from (Measurement(*key, count) for key, count in self._numbers.items())
        yield from (Measurement(*key, histogram) for key, histogram in self._histograms.items())
        for key, (through, ns) in self._bandwidths.items():
            if ns:
                yield Measurement(*key, through / ns * 1e9)

    def _duration(self, key: _Key, row: NcclDelta) -> None:
        seconds = row.ns / 1e9
        if row.bucket == BUCKET_ZERO:
            self._histograms[key].add(Buckets(None, seconds, row.count))
        else:
            self._histograms[key].add(Buckets({row.bucket - DURATION_SHIFT: row.count}, seconds))
