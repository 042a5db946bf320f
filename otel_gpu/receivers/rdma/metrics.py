"""What is measured of RDMA? There are no conventions yet but those for hardware: names say what OpenTelemetry's would."""

from __future__ import annotations

from ...signals.metrics import Instrument, MetricSpec
from ...signals.telemetry import AttributeSpec

_COUNTER, _UPDOWN, _GAUGE, _HISTOGRAM = (
    Instrument.COUNTER,
    Instrument.UPDOWNCOUNTER,
    Instrument.GAUGE,
    Instrument.HISTOGRAM,
)
_PORT = ("rdma.device", "rdma.port")
_PAIR = (*_PORT, "nccl.comm.hash", "network.peer.address", "rdma.local.qpn", "rdma.remote.gid", "rdma.remote.qpn")
_WORK = (*_PAIR, "rdma.loopback", "rdma.operation")

OPERATION_DURATION = MetricSpec(
    "rdma.client.operation.duration",
    "s",
    _HISTOGRAM,
    "From when a work request is posted to when the program sees its completion: behind earlier ones, and until the "
    "program looks. Of completions that were looked at (`rdma.probe.sampling_ratio`) and whose request is known.",
    _WORK,
    floating=True,
)
SERVICE_DURATION = MetricSpec(
    "rdma.client.operation.service.duration",
    "s",
    _HISTOGRAM,
    "The same without the time behind earlier requests of the queue pair: an upper bound of what it took by itself.",
    _WORK,
    floating=True,
)
IO = MetricSpec(
    "rdma.io",
    "By",
    _COUNTER,
    "Bytes of work requests as they are posted; of messages that are received, of those completions that were looked at (by "
    "`ibv_cq_ex`: and whose length the program read).",
    (*_WORK, "network.io.direction"),
)
MESSAGES = MetricSpec(
    "rdma.messages",
    "{message}",
    _COUNTER,
    "Work requests that were posted; messages that were received, of those completions that were looked at.",
    (*_WORK, "network.io.direction"),
)
RECEIVES_POSTED = MetricSpec(
    "rdma.receives.posted", "{request}", _COUNTER, "Receive work requests posted to queue pairs.", _PAIR
)
QP_INFLIGHT = MetricSpec(
    "rdma.qp.inflight",
    "{request}",
    _UPDOWN,
    "Work requests that were posted and whose completion was not seen, of queue pairs whose completions are all followed.",
    _PAIR,
)
QP_STATE = MetricSpec("rdma.qp.state", "{queue_pair}", _UPDOWN, "Queue pairs by state.", (*_PORT, "rdma.qp.state"))
QP_STATE_CHANGES = MetricSpec(
    "rdma.qp.state_changes",
    "{change}",
    _COUNTER,
    "Changes of state that programs asked for.",
    (*_PAIR, "rdma.qp.state"),
)
COMPLETION_ERRORS = MetricSpec(
    "rdma.completion.errors",
    "{completion}",
    _COUNTER,
    "Completions that failed, of those that were looked at.",
    (*_PAIR, "rdma.completion.status"),
)
ASYNC_EVENTS = MetricSpec(
    "rdma.async.events", "{event}", _COUNTER, "Asynchronous events that programs took.", ("rdma.async.event",)
)
MR_REGISTERED = MetricSpec("rdma.mr.registered", "By", _UPDOWN, "Memory registered now, by what was seen.")
MR_REGISTRATIONS = MetricSpec("rdma.mr.registrations", "{registration}", _COUNTER, "Memory regions registered.")
MR_DURATION = MetricSpec(
    "rdma.mr.registration.duration", "s", _HISTOGRAM, "How long registrations took.", floating=True
)
MR_ERRORS = MetricSpec("rdma.mr.registration.errors", "{registration}", _COUNTER, "Registrations that failed.")
COVERAGE = MetricSpec(
    "rdma.probe.coverage",
    "{process}",
    _GAUGE,
    "How much is seen of a process's RDMA: its attribute says it.",
    ("rdma.probe.coverage",),
)
SAMPLING_RATIO = MetricSpec(
    "rdma.probe.sampling_ratio",
    "1",
    _GAUGE,
    "During which part of the last interval the process's completions were looked at.",
    floating=True,
)
UNMATCHED = MetricSpec(
    "rdma.probe.unmatched",
    "{completion}",
    _COUNTER,
    "Completions that were looked at and whose latency is not known: what they are of may have been posted before (`before`), "
    "several requests have its number (`ambiguous`), more are under way than are remembered (`deep`), or the program asked by "
    "`ibv_cq_ex` and did not read which queue pair it is of, or what it was (`unread`).",
    ("otel_gpu.reason",),
)
PORT_IO = MetricSpec("rdma.port.io", "By", _COUNTER, "Bytes through a port.", (*_PORT, "network.io.direction"))
PORT_PACKETS = MetricSpec(
    "rdma.port.packets", "{packet}", _COUNTER, "Packets through a port.", (*_PORT, "network.io.direction")
)
PORT_NACKS = MetricSpec(
    "rdma.port.nacks",
    "{packet}",
    _COUNTER,
    "Negative acknowledgements that the requester got: for a gap (`sequence`), by a later answer (`implied`), or because "
    "the receiver was not ready (`rnr`).",
    (*_PORT, "rdma.nack.type"),
)
PORT_NACK_RATIO = MetricSpec(
    "rdma.port.nack_ratio",
    "1",
    _GAUGE,
    "Negative acknowledgements by packets sent, in the last interval; none where nothing was sent.",
    _PORT,
    floating=True,
)
PORT_RETRANSMIT_RATIO = MetricSpec(
    "rdma.port.retransmit_ratio",
    "1",
    _GAUGE,
    "The same with acknowledgements that did not come in time, and adaptive retransmissions.",
    _PORT,
    floating=True,
)
PORT_TIMEOUTS = MetricSpec(
    "rdma.port.timeouts", "{timeout}", _COUNTER, "Acknowledgements that did not come in time.", _PORT
)
PORT_RETRANSMITS = MetricSpec(
    "rdma.port.retransmits", "{packet}", _COUNTER, "Retransmissions that the device counts as such.", _PORT
)
PORT_CONGESTION = MetricSpec(
    "rdma.port.congestion",
    "{packet}",
    _COUNTER,
    "Congestion notifications sent, handled and ignored, packets marked for congestion, and pauses.",
    (*_PORT, "rdma.congestion.type"),
)
PORT_ERRORS = MetricSpec(
    "rdma.port.errors", "{error}", _COUNTER, "What went wrong, by the name of the counter.", (*_PORT, "error.type")
)
PORT_STATE = MetricSpec("rdma.port.state", "{port}", _GAUGE, "1 while the port is active.", (*_PORT, "rdma.link_layer"))
PORT_SPEED = MetricSpec("rdma.port.speed", "By/s", _GAUGE, "The link's nominal rate.", _PORT)

SPECS = (
    OPERATION_DURATION,
    SERVICE_DURATION,
    IO,
    MESSAGES,
    RECEIVES_POSTED,
    QP_INFLIGHT,
    QP_STATE,
    QP_STATE_CHANGES,
    COMPLETION_ERRORS,
    ASYNC_EVENTS,
    MR_REGISTERED,
    MR_REGISTRATIONS,
    MR_DURATION,
    MR_ERRORS,
    COVERAGE,
    SAMPLING_RATIO,
    UNMATCHED,
    PORT_IO,
    PORT_PACKETS,
    PORT_NACKS,
    PORT_NACK_RATIO,
    PORT_RETRANSMIT_RATIO,
    PORT_TIMEOUTS,
    PORT_RETRANSMITS,
    PORT_CONGESTION,
    PORT_ERRORS,
    PORT_STATE,
    PORT_SPEED,
)
"""Every metric of the receiver, for the registry."""

ATTRIBUTES = (
    AttributeSpec("rdma.async.event", "As libibverbs calls it, without `IBV_EVENT_`, in small letters."),
    AttributeSpec("rdma.completion.status", "As libibverbs calls it, without `IBV_WC_`, in small letters."),
    AttributeSpec(
        "rdma.congestion.type",
        "What was counted.",
        ("cnp_sent", "cnp_handled", "cnp_ignored", "ecn_marked", "wait", "slow_restart"),
    ),
    AttributeSpec("rdma.device", "The device, as `/sys/class/infiniband` has it."),
    AttributeSpec("rdma.link_layer", "What the link is.", ("InfiniBand", "Ethernet")),
    AttributeSpec("rdma.local.qpn", "The queue pair's number; on series of the busiest ones, where that is asked for."),
    AttributeSpec(
        "rdma.loopback",
        "True where a queue pair is connected to itself, as for flushing a GPU's memory: it has no durations.",
    ),
    AttributeSpec("rdma.nack.type", "Why.", ("sequence", "implied", "rnr")),
    AttributeSpec(
        "rdma.operation",
        "What was asked for, or received.",
        (
            "write",
            "write_imm",
            "send",
            "send_imm",
            "read",
            "compare_swap",
            "fetch_add",
            "other",
            "receive",
            "receive_imm",
        ),
    ),
    AttributeSpec("rdma.port", "The port's number on its device."),
    AttributeSpec(
        "rdma.probe.coverage",
        "`full`: every completion is looked at; `sampled`: in windows; `control-only`: no work is seen, though the process "
        "asked for what one needs to work past libibverbs, or has connected queue pairs and no provider's function is known; "
        "`unknown`: no work is seen of connected queue pairs that are older than the agent; `idle`: nothing was posted yet.",
        ("full", "sampled", "control-only", "unknown", "idle"),
    ),
    AttributeSpec(
        "rdma.qp.state", "As in the standard.", ("reset", "init", "rtr", "rts", "sqd", "sqe", "err", "unknown")
    ),
    AttributeSpec("rdma.remote.gid", "The other side's GID, where it is known and no IP address."),
    AttributeSpec("rdma.remote.qpn", "The number of the queue pair on the other side."),
)
"""Of the attributes, for the registry: those that nothing else has."""
