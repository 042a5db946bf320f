"""What crosses between the kernel and the joining of engines? The mirror of ebpf/abi/engines.h; tests compare the two."""

from __future__ import annotations

import enum

import numpy as np

from .records import TOTALS

ENGINE_EVENT = np.dtype(
    [
        *((name, "<u4") for name in ("kind", "tgid", "exec_id", "tid")),
        ("time_ns", "<u8"),
        ("request", "<u8"),
        ("sender", "<u4"),
        ("sender_exec_id", "<u4"),
        ("began_ns", "<u8"),
        ("last_ns", "<u8"),
        ("totals", TOTALS),
    ]
)
ENGINE = np.dtype(
    [
        *(
            (name, "<u8")
            for name in ("request", "strangers", "left", "stranger", "stranger_ns", "worked_ns", "cold_ns")
        ),
        *((name, "<u4") for name in ("is_delivered", "is_sent_messages")),
    ]
)
STRANGERS = (1 << 64) - 1
"""Nobody can tell who they are."""
STEP = np.dtype(
    [
        *((name, "<u4") for name in ("tgid", "exec_id", "tid", "state", "is_unclear", "pad")),
        *((name, "<u8") for name in ("began_ns", "last_ns", "seen_ns")),
        ("totals", TOTALS),
    ]
)


class EngineEvent(enum.IntEnum):
    """What happened; enum engine_event_kind."""

    DELIVERED = 1
    STEP = 2
    AMBIGUOUS = 3
    UNCLEAR_STEP = 4
    FED = 5


class StepState(enum.IntEnum):
    """How far a thread's step has come; enum step_state."""

    NONE = 0
    GOES_ON = 1
    SEEN = 2
    TAKEN = 3
