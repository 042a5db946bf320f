"""What is measured of NCCL? There are no semantic conventions; names and attributes are our own."""

from __future__ import annotations

from ...signals.metrics import Instrument, MetricSpec
from ...signals.telemetry import AttributeSpec
from .names import DATATYPES, HOST_WAIT, REDUCTIONS, UNKNOWN

_COUNTER, _GAUGE, _HISTOGRAM = Instrument.COUNTER, Instrument.GAUGE, Instrument.HISTOGRAM
_COMM = ("nccl.comm.hash", "nccl.nranks", "nccl.rank")
_CALL = ("nccl.collective", *_COMM, "nccl.datatype", "nccl.reduction")

CALLS = MetricSpec(
    "nccl.collective.calls",
    "{call}",
    _COUNTER,
    "Calls of collectives, and of Send and Recv, that NCCL accepted.",
    _CALL,
)
BYTES = MetricSpec(
    "nccl.collective.bytes",
    "By",
    _COUNTER,
    "Bytes that these calls named: their count times the size of the datatype, as the caller gave it (of AllGather what a rank "
    "sends, of ReduceScatter what it receives, of AlltoAll what goes to each rank).",
    _CALL,
)
ENQUEUE_DURATION = MetricSpec(
    "nccl.collective.enqueue.duration",
    "s",
    _HISTOGRAM,
    "How long the calls took the host: to put the work on a stream, not to do it. Within a group that is done at its end.",
    (*_CALL, "nccl.grouped"),
    floating=True,
)
DURATION = MetricSpec(
    "nccl.collective.duration",
    "s",
    _HISTOGRAM,
    "From when a call was made, or its group was about to end, to when the host saw that it was done: an upper bound of what it "
    "took, as it begins when what is before it on its stream is done, and ends before the host looks. Of calls whose stream, "
    "which is no default stream, or an event behind them on it the host waited for, or asked and was told to be done.",
    (*_CALL, "nccl.completion"),
    floating=True,
)
BUS_BANDWIDTH = MetricSpec(
    "nccl.collective.bus_bandwidth",
    "By/s",
    _GAUGE,
    "Bytes by time of the calls of the last interval that were the only ones of NCCL's on their stream, by nccl-tests' formulas "
    "for what goes through each link. As the time is an upper bound, it is a lower one.",
    (*_CALL, "nccl.completion"),
    floating=True,
)
GROUP_DURATION = MetricSpec(
    "nccl.group.enqueue.duration",
    "s",
    _HISTOGRAM,
    "How long the ends of outermost groups took the host, which put all of the group's work on its streams.",
    floating=True,
)
ERRORS = MetricSpec(
    "nccl.errors", "{call}", _COUNTER, "Calls that NCCL refused.", ("error.type", "nccl.function", *_COMM)
)
INIT_DURATION = MetricSpec(
    "nccl.comm.init.duration",
    "s",
    _HISTOGRAM,
    "How long the calls took that make a communicator; those of callers that do not wait for it come back at once.",
    ("nccl.function", *_COMM),
    floating=True,
)
ABORTS = MetricSpec("nccl.comm.aborts", "{call}", _COUNTER, "Communicators that were aborted.", _COMM)
SEQUENCE = MetricSpec(
    "nccl.comm.sequence",
    "{collective}",
    _GAUGE,
    "How many collectives a rank has begun on a communicator since it was made: ranks that fall behind keep the others waiting.",
    _COMM,
)
ARRIVAL_SKEW = MetricSpec(
    "nccl.collective.arrival_skew",
    "s",
    _HISTOGRAM,
    "How much later than the first of the ranks on this host a rank arrived at a collective. As hosts enqueue ahead of their "
    "GPUs, it is the hosts' skew.",
    ("nccl.collective", *_COMM),
    floating=True,
)
LAST_ARRIVALS = MetricSpec(
    "nccl.collective.last_arrivals",
    "{call}",
    _COUNTER,
    "Collectives at which a rank arrived last of those on this host. Of all ranks of a communicator here they add up to how many "
    "were compared.",
    ("nccl.collective", *_COMM),
)
WAITED_FOR = MetricSpec(
    "nccl.collective.waited_for.time",
    "s",
    _COUNTER,
    "How long the ranks on this host waited for the last of them: from when the last but one arrived to when it did.",
    ("nccl.collective", *_COMM),
    floating=True,
)
SPECS = (
    CALLS,
    BYTES,
    ENQUEUE_DURATION,
    DURATION,
    BUS_BANDWIDTH,
    GROUP_DURATION,
    ERRORS,
    INIT_DURATION,
    ABORTS,
    SEQUENCE,
    ARRIVAL_SKEW,
    LAST_ARRIVALS,
    WAITED_FOR,
)
"""Every metric of the receiver, for the registry."""

ATTRIBUTES = (
    AttributeSpec("nccl.collective", "Which collective, as NCCL names it without `nccl`; or `Send`, `Recv`."),
    AttributeSpec(
        "nccl.comm.hash",
        "The communicator: FNV-1a, of 64 bits, over its id, and of one that was split from another over that and the split; "
        "the same on all ranks. `unknown` for one that was made before the agent looked.",
    ),
    AttributeSpec("nccl.completion", "By what it is known that a call's work is done.", (HOST_WAIT,)),
    AttributeSpec("nccl.count", "Elements, as the caller gave them."),
    AttributeSpec("nccl.datatype", "Of the elements.", (*DATATYPES, UNKNOWN)),
    AttributeSpec("nccl.function", "The function that was called, without `nccl`."),
    AttributeSpec("nccl.grouped", "The calls were made within a group."),
    AttributeSpec("nccl.in_flight", "The call had not returned yet when this was told."),
    AttributeSpec("nccl.nranks", "Ranks of the communicator, or `unknown`."),
    AttributeSpec("nccl.rank", "The caller's rank in the communicator, or `unknown`."),
    AttributeSpec("nccl.reduction", "What is done with the elements, where they are reduced.", REDUCTIONS),
    AttributeSpec("nccl.root", "The root, where there is one."),
    AttributeSpec("nccl.sequence", "The collective's number on its communicator, from 1."),
)
"""Of its metrics and spans, for the registry."""
