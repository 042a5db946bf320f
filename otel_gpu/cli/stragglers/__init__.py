"""Which rank keeps the others of a communicator waiting, and which collective cannot come to an end?"""

from __future__ import annotations

from .finding import Arrival, Communicator, Data, Hang, HangKind, Member, Mismatch, Rules, Straggler, find
from .links import Latency, Link, SlowLink
from .reading import read

__all__ = [
    "Arrival",
    "Communicator",
    "Data",
    "Hang",
    "HangKind",
    "Latency",
    "Link",
    "Member",
    "Mismatch",
    "Rules",
    "SlowLink",
    "Straggler",
    "find",
    "read",
]
