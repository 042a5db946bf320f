"""Which rank do the others wait for, and is the network the reason?"""

from __future__ import annotations

from .board import TO_PROCESS, Board, Row
from .panels import RED, YELLOW, Lines, Number, Query
from .promql import PROCESS, gauge, lately, mean, quantile, rate, share, sum_rate

_RANK = ("host.name", "nccl.comm.hash", "nccl.rank")
_NAMED = "{{nccl_comm_hash}} rank {{nccl_rank}} on {{host_name}}"
_KNOWN = 'nccl_comm_hash!="unknown"'
_COLLECTIVE = ("job", "nccl.collective")
_PORT = ("host.name", "rdma.device", "rdma.port")
_OF_PORT = "{{host_name}} {{rdma_device}}/{{rdma_port}}"
_WHO = "{{job}} {{process_pid}} on {{host_name}}"
_SENT = rate("rdma.port.packets", (), 'network_io_direction="transmit"')

BOARD = Board(
    "communication",
    "NCCL and RDMA",
    "Collectives between GPUs and the network below them: who is late, how fast, and what is sent again. Receivers nccl and "
    "rdma.",
    (
        Row(
            "Now",
            (
                Number(
                    "Refused packets",
                    "Negative acknowledgements by packets sent, of all ports (alert RdmaNacks).",
                    "percentunit",
                    (Query(share(rate("rdma.port.nacks"), _SENT), "refused"),),
                    limits=((1e-4, YELLOW), (1e-3, RED)),
                ),
                Number(
                    "Ports that are down",
                    "Ports of RDMA devices that are not active (alert RdmaPortDown).",
                    "none",
                    (Query(f"count({gauge('rdma.port.state', _PORT, over='max')} == 0) or vector(0)", "down"),),
                    limits=((1, RED),),
                ),
                Number(
                    "Collectives a second",
                    "Calls of NCCL that were accepted.",
                    "ops",
                    (Query(rate("nccl.collective.calls"), "calls"),),
                ),
            ),
        ),
        Row(
            "Ranks",
            (
                Lines(
                    "Waited for",
                    "For how much of the time the other ranks of its host waited for a rank to arrive. One line far above the "
                    "others is a straggler (alert NcclStraggler).",
                    "percentunit",
                    (Query(rate("nccl.collective.waited_for.time", _RANK, _KNOWN), _NAMED),),
                    links=(TO_PROCESS,),
                ),
                Lines(
                    "Last at how many",
                    "Share of the collectives at which a rank was the last of its host. Ranks that take turns are alike.",
                    "percentunit",
                    (
                        Query(
                            f"{rate('nccl.collective.last_arrivals', _RANK, _KNOWN)} / on (host_name, nccl_comm_hash) group_left () "
                            f"({rate('nccl.collective.last_arrivals', _RANK[:2], _KNOWN)} > 0)",
                            _NAMED,
                        ),
                    ),
                    highest=1,
                ),
                Lines(
                    "Later than the first",
                    "How much later than the first of its host a rank arrives, at the chosen quantile.",
                    "s",
                    (Query(quantile("nccl.collective.arrival_skew", _RANK), _NAMED),),
                ),
                Lines(
                    "Behind",
                    "How many collectives a rank is behind the one that is furthest. It stays above 0: the rank does not come, "
                    "and all wait (alert NcclRankMissing).",
                    "none",
                    (
                        Query(
                            f"{gauge('nccl.comm.sequence', ('nccl.comm.hash',), _KNOWN, over='max')} - on (nccl_comm_hash) group_right () "
                            f"{gauge('nccl.comm.sequence', _RANK, _KNOWN, over='max')}",
                            _NAMED,
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Collectives",
            (
                Lines(
                    "Calls",
                    "A second, by collective.",
                    "ops",
                    (Query(rate("nccl.collective.calls", _COLLECTIVE), "{{job}} {{nccl_collective}}"),),
                ),
                Lines(
                    "Bytes",
                    "A second, as the calls name them.",
                    "binBps",
                    (Query(rate("nccl.collective.bytes", _COLLECTIVE), "{{job}} {{nccl_collective}}"),),
                ),
                Lines(
                    "Bus bandwidth",
                    "What goes through each link, by nccl-tests' formulas, of collectives that the host waits for: at least so "
                    "much.",
                    "binBps",
                    (Query(lately("", "nccl.collective.bus_bandwidth", _COLLECTIVE), "{{job}} {{nccl_collective}}"),),
                ),
                Lines(
                    "How long",
                    "From the call to when the host saw the end, at the chosen quantile: at most so long.",
                    "s",
                    (Query(quantile("nccl.collective.duration", _COLLECTIVE), "{{job}} {{nccl_collective}}"),),
                ),
                Lines(
                    "Time to enqueue",
                    "How long the calls, and the ends of groups, take the host, at the chosen quantile. Milliseconds: the queue of "
                    "the GPU is full, or the CPU is not there.",
                    "s",
                    (
                        Query(quantile("nccl.collective.enqueue.duration", _COLLECTIVE), "{{job}} {{nccl_collective}}"),
                        Query(quantile("nccl.group.enqueue.duration", ("job",)), "{{job}} groups"),
                    ),
                ),
                Lines(
                    "Refused calls and aborts",
                    "Calls that NCCL refused, and communicators that were aborted, a second.",
                    "ops",
                    (
                        Query(
                            rate("nccl.errors", ("job", "nccl.function", "error.type")),
                            "{{job}} {{nccl_function}} {{error_type}}",
                        ),
                        Query(rate("nccl.comm.aborts", ("job",)), "{{job}} aborts"),
                    ),
                ),
                Lines(
                    "Making communicators",
                    "Seconds a second that threads spend in it. It grows with the number of ranks.",
                    "none",
                    (
                        Query(
                            sum_rate("nccl.comm.init.duration", ("job", "nccl.function")), "{{job}} {{nccl_function}}"
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "RDMA, by process",
            (
                Lines(
                    "Bytes",
                    "A second, of work requests as they are posted.",
                    "binBps",
                    (Query(rate("rdma.io", (*PROCESS, "network.io.direction")), _WHO + " {{network_io_direction}}"),),
                ),
                Lines(
                    "Messages",
                    "A second, by operation.",
                    "ops",
                    (Query(rate("rdma.messages", ("job", "rdma.operation")), "{{job}} {{rdma_operation}}"),),
                ),
                Lines(
                    "From post to completion",
                    "At the chosen quantile, by peer. A peer that is slower than the others has a bad link, or is busy.",
                    "s",
                    (
                        Query(
                            quantile("rdma.client.operation.duration", ("job", "network.peer.address")),
                            "{{job}} to {{network_peer_address}}",
                        ),
                    ),
                ),
                Lines(
                    "Without the queue before it",
                    "On average, by operation: what a request takes by itself, at most.",
                    "s",
                    (
                        Query(
                            mean("rdma.client.operation.service.duration", ("job", "rdma.operation")),
                            "{{job}} {{rdma_operation}}",
                        ),
                    ),
                ),
                Lines(
                    "Queue pairs, by state",
                    "`err` is at its end, and what uses it too.",
                    "none",
                    (Query(gauge("rdma.qp.state", ("job", "rdma.qp.state")), "{{job}} {{rdma_qp_state}}"),),
                    stacked=True,
                ),
                Lines(
                    "Changes of state",
                    "A second, that programs asked for.",
                    "ops",
                    (Query(rate("rdma.qp.state_changes", ("job", "rdma.qp.state")), "{{job}} {{rdma_qp_state}}"),),
                ),
                Lines(
                    "Under way",
                    "Work requests that were posted and whose completion was not seen.",
                    "none",
                    (Query(gauge("rdma.qp.inflight", PROCESS), _WHO),),
                ),
                Lines(
                    "How much is seen",
                    "Share of the time in which completions were looked at. Below 1 counts of what is received are of that part.",
                    "percentunit",
                    (Query(gauge("rdma.probe.sampling_ratio", PROCESS, over="min"), _WHO),),
                    highest=1,
                ),
                Lines(
                    "Failed completions",
                    "A second, by status (alert RdmaRetriesExhausted).",
                    "ops",
                    (
                        Query(
                            rate("rdma.completion.errors", ("job", "network.peer.address", "rdma.completion.status")),
                            "{{job}} to {{network_peer_address}} {{rdma_completion_status}}",
                        ),
                    ),
                ),
                Lines(
                    "Registered memory",
                    "What devices may read and write, and registrations a second. In a steady state there are none.",
                    "bytes",
                    (
                        Query(gauge("rdma.mr.registered", PROCESS), _WHO),
                        Query(rate("rdma.mr.registrations", PROCESS), _WHO + " registrations a second"),
                    ),
                ),
            ),
        ),
        Row(
            "RDMA, by port",
            (
                Lines(
                    "Bytes through the port",
                    "A second, and what the link could carry.",
                    "binBps",
                    (
                        Query(
                            rate("rdma.port.io", (*_PORT, "network.io.direction")),
                            _OF_PORT + " {{network_io_direction}}",
                        ),
                        Query(gauge("rdma.port.speed", _PORT, over="max"), _OF_PORT + " link"),
                    ),
                ),
                Lines(
                    "Refused packets, by reason",
                    "Negative acknowledgements a second: `sequence` is loss, `rnr` a receiver that is too slow.",
                    "pps",
                    (Query(rate("rdma.port.nacks", (*_PORT, "rdma.nack.type")), _OF_PORT + " {{rdma_nack_type}}"),),
                ),
                Lines(
                    "Refused and sent again, by packets sent",
                    "1 of 10,000 costs bandwidth, 1 of 1,000 most of it.",
                    "percentunit",
                    (
                        Query(lately("", "rdma.port.nack_ratio", _PORT), _OF_PORT + " refused"),
                        Query(lately("", "rdma.port.retransmit_ratio", _PORT), _OF_PORT + " sent again"),
                    ),
                    limits=((1e-4, YELLOW), (1e-3, RED)),
                ),
                Lines(
                    "Congestion",
                    "Notifications, marked packets and pauses a second.",
                    "pps",
                    (
                        Query(
                            rate("rdma.port.congestion", (*_PORT, "rdma.congestion.type")),
                            _OF_PORT + " {{rdma_congestion_type}}",
                        ),
                    ),
                ),
                Lines(
                    "Errors and timeouts",
                    "A second, by counter of the device.",
                    "ops",
                    (
                        Query(rate("rdma.port.errors", (*_PORT, "error.type")), _OF_PORT + " {{error_type}}"),
                        Query(rate("rdma.port.timeouts", _PORT), _OF_PORT + " timeouts"),
                        Query(rate("rdma.port.retransmits", _PORT), _OF_PORT + " retransmissions"),
                    ),
                ),
            ),
        ),
    ),
)
