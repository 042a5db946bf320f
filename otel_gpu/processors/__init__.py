"""What can the kernel not know? Processors add it to measurements, or take detail away."""

from __future__ import annotations

from typing import Protocol

from ..signals.metrics import Measurement, Resource


class Processor(Protocol):
    """What the agent asks of every processor."""

    def process(self, measurements: list[Measurement]) -> list[Measurement]:
        """Return the measurements to hand on."""

    def forget(self, resource: Resource) -> None:
        """Drop what is remembered of a resource that has ended."""
