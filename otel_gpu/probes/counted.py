"""How much is counted? The less, the less it costs."""

from __future__ import annotations

import enum


class Counted(enum.Enum):
    """How much of what programs do is counted."""

    ALL = "all"
    NO_TIME = "all but the time for which devices work"
    LAUNCHES = "launches alone, and what tells them apart: names, graphs, captures, contexts"
