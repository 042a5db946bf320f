"""What may stand below `sdk:` in a configuration?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from ...values import Duration, parse_duration
from .settings import SdkSettings


@dataclass(frozen=True, slots=True)
class SdkQueueSection:
    """`sending_queue:` of `sdk:`, short because what waits there is Python objects."""

    queue_size: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 10


@dataclass(frozen=True, slots=True)
class SdkSection:
    """`sdk:`, an exporter of the OpenTelemetry SDK that another package installed."""

    exporter: str
    timeout: Duration = "10s"
    sending_queue: SdkQueueSection = field(default_factory=SdkQueueSection)

    def settings(self, where: str) -> SdkSettings:
        """Return the exporter's settings."""
        return SdkSettings(
            self.exporter, parse_duration(self.timeout, f"{where}.timeout"), self.sending_queue.queue_size
        )
