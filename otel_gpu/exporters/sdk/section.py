"""What may stand below `sdk:` in a configuration?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from ...components.values import Duration, parse_duration
from .settings import SdkSettings


@dataclass(frozen=True, slots=True)
class SdkQueueSection:
    """`sending_queue:` of `sdk:`, short because what waits there is Python objects."""

    queue_size: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 10
    """Intervals that wait; of traces up to 50,000 spans each."""


@dataclass(frozen=True, slots=True)
class SdkSection:
    """An exporter of the OpenTelemetry SDK that another package installed."""

    exporter: str
    """Its entry point in `opentelemetry_metrics_exporter`; for traces, in `opentelemetry_traces_exporter`."""
    timeout: Duration = "10s"
    """How long an export may take."""
    sending_queue: SdkQueueSection = field(default_factory=SdkQueueSection)
    """What waits to be handed over."""

    def settings(self, where: str) -> SdkSettings:
        """Return the exporter's settings."""
        return SdkSettings(
            self.exporter, parse_duration(self.timeout, f"{where}.timeout"), self.sending_queue.queue_size
        )
