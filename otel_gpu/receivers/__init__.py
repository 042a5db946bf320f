"""What did the kernel count? Each receiver turns what it reads into measurements."""

from __future__ import annotations

from typing import Protocol

from ..signals.metrics import Measurement


class Receiver(Protocol):
    """What the agent asks of every receiver."""

    def collect(self) -> list[Measurement]:
        """Return what was measured since the last call."""

    def close(self) -> None:
        """Release everything; idempotent."""
