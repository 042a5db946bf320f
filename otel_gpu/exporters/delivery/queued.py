"""What do exporters have in common that hand what is to be exported to an object of Python? A thread of their own, and a queue."""

from __future__ import annotations

from typing import Generic, TypeVar

from ...supervision import Worker
from .sender import Sender, Transport
from .settings import RetrySettings
from .statistics import ExporterStats

Body = TypeVar("Body")


class QueuedExporter(Generic[Body]):
    """Delivers in order; what fails is not tried again, unless the object does so by itself."""

    def __init__(
        self, name: str, transport: Transport[Body], *, timeout_s: float, queue_size: int, shown: str = ""
    ) -> None:
        """The log calls the exporter as it is `shown`, or by its name."""
        self._name = name
        self._sender = Sender(
            shown or name, transport, timeout_s=timeout_s, retry=RetrySettings(enabled=False), queue_size=queue_size
        )

    @property
    def name(self) -> str:
        return self._name

    def shutdown(self, timeout_s: float) -> None:
        """Deliver what is queued within the time given."""
        self._sender.shutdown(timeout_s)

    def stats(self) -> ExporterStats:
        return self._sender.stats()

    def workers(self) -> list[Worker]:
        return [self._sender.worker]
