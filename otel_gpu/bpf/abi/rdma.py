"""Queue pairs, what they did, and the programs that use verbs.

Generated from ebpf/abi/rdma.h by `make generate`; do not edit.
"""

from __future__ import annotations

import enum

import numpy as np


class RdmaOperation(enum.IntEnum):
    """What a work request asks for: the first seven are enum ibv_wr_opcode."""

    WRITE = 0
    WRITE_IMM = 1
    SEND = 2
    SEND_IMM = 3
    READ = 4
    COMPARE_SWAP = 5
    FETCH_ADD = 6
    OTHER = 7
    """Memory windows, invalidation, large segments."""


RDMA_OPERATIONS = 8
QUEUE_PAIR_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("context", "<u8"),
        ("qpn", "<u4"),
        ("pad", "<u4"),
    ]
)
"""A queue pair. Its number is unique on its device only, and a device is opened anew by each context."""
QPN_NONE = 0xFFFFFFFF
"""Of the queue pairs that found no room: their posts are added up in one entry."""
DEVICE_NAME = 64
"""IBV_SYSFS_NAME_MAX."""
STATE_UNKNOWN = 0xFF
QUEUE_PAIR = np.dtype(
    [
        ("key", QUEUE_PAIR_KEY),
        ("id", "<u8"),  # no other has it, also none of the same number later
        ("posted", "<u8"),  # work requests, to its send queue
        ("awaited", "<u8"),  # receive work requests, but those of shared queues
        ("operations", "<u8", (8,)),
        ("bytes", "<u8", (8,)),
        ("last_done_ns", "<u8"),  # when the last completion was seen
        ("send_queue", "<u8"),  # its completion queues
        ("receive_queue", "<u8"),
        ("comm", "<u8"),  # of NCCL, that it is of; 0 where that is not known, or it is of none
        ("base", "<u8"),  # from where on the ring knows all that was posted
        ("tail", "<u8"),  # up to where it is over
        ("window", "<u4"),
        ("unread", "<u4"),  # verbs_program.unread when it was last followed
        ("matches", "<u4"),
        ("depth", "<u4"),  # the most work requests in its send queue
        ("remote_qpn", "<u4"),  # 0 where it is not known, or where there is none
        ("destination", "<u4"),  # of InfiniBand without global routes: the other port's local identifier
        ("gid", "u1", (16,)),  # of the other side
        ("type", "u1"),  # enum ibv_qp_type, 0 where it is not known
        ("state", "u1"),  # enum ibv_qp_state, or STATE_UNKNOWN
        ("port", "u1"),
        ("mtu", "u1"),  # enum ibv_mtu
        ("gid_index", "u1"),
        ("has_gid", "u1"),
        ("from_start", "u1"),  # seen before anything was posted
        ("all_signal", "u1"),  # every work request has a completion
        ("is_followed", "u1"),  # which work request is next to complete is known
        ("reuses", "u1"),  # it gave a number again before the first with it was over
        ("is_lost", "u1"),  # there was no room for its ring
        ("pad", "u1", (5,)),
        ("device", "S64"),
    ]
)
"""What is known of a queue pair, and what it did."""
WORK_RING_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("id", "<u8"),
    ]
)
"""What a program has of a queue pair, by its id."""


class RdmaRowKind(enum.IntEnum):
    """What a row counts."""

    LATENCY = 0
    """From post to completion, by operation and bucket: nanoseconds."""
    SERVICE = 1
    """Since the completion before, where that was later than the post."""
    RECEIVED = 2
    """Messages, by what they were: bytes."""
    ERROR = 3
    """Completions that failed, by status in the bucket."""
    UNMATCHED = 4
    """Completions whose latency is not known, by enum rdma_unmatched in the bucket."""
    STATE = 5
    """Changes of state, by the new one in the bucket."""
    ASYNC = 6
    """Asynchronous events, by enum ibv_event_type in the bucket."""
    REGISTERED = 7
    """Memory regions: bytes."""
    DEREGISTERED = 8
    """Those among them that are gone."""
    REGISTRATION = 9
    """How long it took, by bucket: nanoseconds."""
    REFUSED = 10
    """Registrations that failed."""


class RdmaUnmatched(enum.IntEnum):
    """Why a completion has no latency."""

    BEFORE = 0
    """What it is of was, or may have been, posted before its queue pair was followed."""
    AMBIGUOUS = 1
    """Several requests that may still be under way have its number."""
    DEEP = 2
    """More are under way than are remembered."""
    UNREAD = 3
    """The program did not read which queue pair it is of, or what it was."""


RDMA_ROW_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("id", "<u8"),
        ("kind", "u1"),
        ("operation", "u1"),  # enum rdma_operation; of what was received 0 or, with immediate data, 1
        ("bucket", "u1"),
        ("pad", "u1", (5,)),
    ]
)
"""Of whom a row is: a queue pair by its id, or 0 for the program itself."""
RDMA_ROW = np.dtype(
    [
        ("count", "<u8"),
        ("sum", "<u8"),
    ]
)


class VerbsEventKind(enum.IntEnum):
    """What the kernel reports at once."""

    OPENED = 1
    """A device was opened: poll_cq, post_send, post_recv."""
    EXTENDED = 2
    """A queue pair has functions of its own: struct verbs_event says which."""
    QUEUE = 3
    """So has a completion queue: from start_poll on, as struct ibv_cq_ex has them."""
    POLLED = 4
    """It polls more often than it may be looked at."""


VERBS_FUNCTIONS = 24
VERBS_EVENT = np.dtype(
    [
        ("kind", "<u4"),
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("pad", "<u4"),
        ("functions", "<u8", (24,)),  # of a queue pair those from wr_atomic_cmp_swp on, as struct ibv_qp_ex has them
    ]
)
VERBS_PROGRAM = np.dtype(
    [
        ("second_ns", "<u8"),  # when the present second of polls began
        ("polls", "<u8"),  # all that were looked at
        ("extended", "<u8"),  # the functions that were told last
        ("queues", "<u8"),  # those of a completion queue
        ("in_second", "<u4"),
        ("window", "<u4"),  # in which it polled too often
        ("told", "<u4"),  # events
        ("unread", "<u4"),  # completions of which is not known what they were of
        ("direct", "<u8"),  # how often it asked for what one needs to work past libibverbs
    ]
)
"""A program that uses verbs."""
POLL_WINDOW = np.dtype(
    [
        ("number", "<u4"),
        ("is_open", "<u4"),
        ("most", "<u4"),  # polls a second
        ("pad", "<u4"),
    ]
)
"""Whether a program's completions are looked at now, and for which time; written by the agent."""
