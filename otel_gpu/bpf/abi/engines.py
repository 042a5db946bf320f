"""Programs that work for requests of others.

Generated from ebpf/abi/engines.h by `make generate`; do not edit.
"""

from __future__ import annotations

import enum

import numpy as np

from .requests import GPU_TOTALS


class EngineEventKind(enum.IntEnum):
    """What happened in an engine."""

    DELIVERED = 1
    """A message of a request was received."""
    STEP = 2
    """A thread's step is over."""
    AMBIGUOUS = 3
    """Equal messages of several requests are on the way: nobody knows who gets which."""
    UNCLEAR_STEP = 4
    """A step is over that may have served somebody besides those who are known."""
    FED = 5
    """A program received what another sent whose requests are not followed."""


ENGINE_EVENT = np.dtype(
    [
        ("kind", "<u4"),  # enum engine_event_kind
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("tid", "<u4"),
        ("time_ns", "<u8"),  # when; of a step, when the host saw its end
        ("request", "<u8"),  # delivered; ambiguous: one of them
        ("sender", "<u4"),  # tgid of who sent the message
        ("sender_exec_id", "<u4"),
        ("began_ns", "<u8"),  # of a step: its first launch, or copy to the device,
        ("last_ns", "<u8"),  # and its last
        ("totals", GPU_TOTALS),
    ]
)
"""What happened in an engine. Times are CLOCK_MONOTONIC."""
ENGINE = np.dtype(
    [
        ("request", "<u8"),  # that was delivered last
        ("strangers", "<u8"),  # messages of strangers, over ZeroMQ, which does not say when one of them is answered,
        ("left", "<u8"),  # and with how many of those it is done, as the agent says
        # the program that sent those which are left, tgid << 32 | exec_id; STRANGERS: nobody can tell
        ("stranger", "<u8"),
        ("stranger_ns", "<u8"),  # when one was received last
        ("worked_ns", "<u8"),  # when it last began something that is no single request's
        # when it was met amid work of which it is not known whom it is for, as of the first stranger; 0: it was not
        ("cold_ns", "<u8"),
        ("is_delivered", "<u4"),  # a request was handed on to it: it is an engine
        ("is_sent_messages", "<u4"),  # of ZeroMQ: it hands them on within, so what any of its threads does is for them
    ]
)
"""A program that others send messages to. Whose message is of no request that is known is a stranger: what the
program does until it is done with that may be for it."""
STRANGERS = 0xFFFFFFFFFFFFFFFF


class StepState(enum.IntEnum):
    """How far a thread's step has come."""

    NONE = 0
    """The thread has done nothing since the last one was told."""
    GOES_ON = 1
    SEEN = 2
    """The host has seen the device done: what comes next may begin another."""
    TAKEN = 3
    """It is being told."""


STEP = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("tid", "<u4"),
        ("state", "<u4"),
        ("is_unclear", "<u4"),
        ("pad", "<u4"),
        ("began_ns", "<u8"),
        ("last_ns", "<u8"),
        ("seen_ns", "<u8"),
        ("totals", GPU_TOTALS),
    ]
)
"""What a thread of an engine is doing."""
