"""What can be set of the receiver that measures the agent itself?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SelfSettings:
    """`receivers.self`."""
