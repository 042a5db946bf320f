"""What do exporters have in common that hand what is to be exported to an object of Python? A thread of their own, and a queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from ..runtime.supervision import Worker
from ..signals import Signal
from . import PipelineExporter
from .delivery.sender import Sender, Transport
from .delivery.settings import RetrySettings
from .delivery.statistics import ExporterStats, Operation, Outcomes

Body = TypeVar("Body")


class QueuedExporter(PipelineExporter, Generic[Body]):
    """Delivers in order; what fails is not tried again, unless the object does so by itself."""

    def __init__(
        self,
        name: str,
        transport: Transport[Body],
        *,
        timeout_s: float,
        queue_size: int,
        shown: str = "",
        signal: Signal = "metrics",
    ) -> None:
        """The log calls the exporter as it is `shown`, or by its name; `signal` is that of payloads that do not say theirs."""
        super().__init__(name)
        self._sender = Sender(
            shown or name,
            transport,
            timeout_s=timeout_s,
            retry=RetrySettings(enabled=False),
            queue_size=queue_size,
            signal=signal,
        )

    def shutdown(self, timeout_s: float) -> None:
        """Deliver what is queued within the time given."""
        self._sender.shutdown(timeout_s)

    def begin_shutdown(self, timeout_s: float) -> None:
        """Do as `shutdown`, without a wait."""
        self._sender.close_after(timeout_s)

    def join(self) -> None:
        """Wait for the end of what `begin_shutdown` began."""
        self._sender.join()

    def stats(self) -> ExporterStats:
        return self._sender.stats()

    def outcomes(self) -> Outcomes:
        return self._sender.outcomes()

    def take_operations(self) -> Iterator[Operation]:
        return self._sender.take_operations()

    def workers(self) -> list[Worker]:
        return [self._sender.worker]
