"""What can be set of how a failed request is tried again?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """How a failed request is tried again: exponential back-off with jitter, as the Collector names it."""

    enabled: bool = True
    initial_interval_s: float = 1.0
    max_interval_s: float = 30.0
    multiplier: float = 1.5
    randomization_factor: float = 0.5
    """Each wait is multiplied by a random factor in 1 ± this."""
    max_elapsed_time_s: float = 300.0
    """A request older than this is given up and counted as failed; 0 never gives up."""
