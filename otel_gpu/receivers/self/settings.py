"""What can be set of the receiver that measures the agent itself?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SelfSettings:
    """How the agent itself is: what it lost, what it costs, and whether its parts do their work."""
