"""How much is counted? The less, the less it costs."""

from __future__ import annotations

import enum


class Counted(enum.IntEnum):
    """How much of what programs do is counted: each is part of the next."""

    LAUNCHES = 1
    """Launches alone, and what tells them apart: names, graphs, captures, contexts."""
    NO_TIME = 2
    """All but the time for which devices work."""
    ALL = 3
