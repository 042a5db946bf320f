"""What can be set of what a person at a terminal sees?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Tables on standard output."""

    rows_per_metric: int = 10
    """Of each process, the largest ones; a line says how many more there are. 0 shows everything."""
    spans_per_interval: int = 50
    """The longest ones; a line says how many more there are. 0 shows everything."""
