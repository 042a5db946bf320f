"""How are the requests of a program followed without an agent? By the receivers that it takes, observing as an agent's do."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from types import TracebackType
from typing import TypeVar

from otel_gpu.discovery.identification import Identification
from otel_gpu.receivers.cuda.receiver import CudaReceiver
from otel_gpu.receivers.cuda.settings import CudaSettings
from otel_gpu.receivers.inference.receiver import InferenceReceiver
from otel_gpu.receivers.inference.settings import InferenceSettings
from otel_gpu.service.ending import Ending
from otel_gpu.service.observation import Observation
from otel_gpu.signals.metrics import Measurement
from otel_gpu.signals.spans import Span, SpanKind
from tests.e2e.processes import DEADLINE_S
from tests.waiting import until

Found = TypeVar("Found", Measurement, Span)
LAUNCHES = "gpu.cuda.kernel.launch.calls"
UNATTRIBUTED = "otel_gpu.unattributed.launches"


class Following:
    """Follows the requests of programs. A context manager."""

    def __init__(self, pids: Sequence[int], feeding: Sequence[int] = ()) -> None:
        """`feeding` are processes that it shall find by what they send to the others."""
        self._pids = (*pids, *feeding)
        wanted = {"cuda": CudaSettings(map_entries=8192), "inference": InferenceSettings()}
        self._observation = Observation(wanted, pids=self._pids)
        for pid in pids:
            self._observation.processes.observe(pid, late=True)
        self._observation.open()
        cuda, requests = self._observation.find(CudaReceiver), self._observation.find(InferenceReceiver)
        assert cuda is not None
        assert requests is not None
        self.cuda, self.requests = cuda, requests
        self._attached = threading.Event()
        self._observation.watch(on_attached=lambda *_: self._attached.set())
        for pid in pids:
            self._observation.observe(pid)
        self.measured: list[Measurement] = []
        self.spans: list[Span] = []

    def __enter__(self) -> Following:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        ending = Ending(DEADLINE_S)
        self._observation.stop_watching(ending)
        self._observation.release(ending)

    def wait_followed(self) -> None:
        """Wait until the driver is probed, and the requests of every program are followed and believed."""
        self.wait_followed_at_first()
        until(lambda: all(map(self.requests.followed.is_trusted, self._pids)), "a program is not trusted")

    def wait_followed_at_first(self) -> None:
        """Wait until the driver is probed, and the requests of every program are followed."""
        assert self._attached.wait(DEADLINE_S)
        until(lambda: all(map(self.requests.followed.is_followed, self._pids)), "a program is not followed")

    def has_published(self, pid: int) -> bool:
        """Tell whether what a process publishes of itself was read."""
        process = self._observation.processes.current(pid)
        identity = process.identity if process is not None else None
        return isinstance(identity, Identification) and bool(identity.published)

    def take(self) -> None:
        """Take what was measured so far."""
        self.measured += self.cuda.collect()
        self.measured += self.requests.collect()
        self.spans += self.requests.spans()

    def wait_forgotten(self) -> None:
        """Wait until what the receivers keep of a program that has ended is let go of."""

        def are_over() -> bool:
            over = self._observation.processes.ended()
            self.take()
            return bool(over)

        until(are_over, "no program has ended")

    def wait_spans(self, count: int) -> None:
        """Wait until so many requests are told."""

        def are_told() -> bool:
            self.spans += self.requests.spans()
            return len(self.servers) >= count

        until(are_told, lambda: f"{len(self.servers)} of {count} requests were told: {self.requests.health()}")
        # Who a program is is asked with its first counts, as an agent does soon; until then it is looked at again and again.
        self.take()

    def end(self) -> None:
        """Take what is left, as an agent that ends."""
        self.requests.settle(DEADLINE_S)
        # Counts of kernels whose names are looked for are held back else.
        self.cuda.settle(DEADLINE_S)
        self.take()

    @property
    def servers(self) -> list[Span]:
        """The spans of requests."""
        return [span for span in self.spans if span.kind is SpanKind.SERVER]

    def launches(self) -> int:
        """Return how many launches were counted."""
        return launches_of(self.measured)

    def unattributed(self) -> dict[str, int]:
        """Return the launches without an owner, by reason."""
        return unattributed_of(self.measured)


def launches_of(measured: Iterable[Measurement]) -> int:
    """Return how many launches were counted."""
    return sum(int(m.value) for m in measured if m.metric.name == LAUNCHES)  # type: ignore[call-overload]


def unattributed_of(measured: Iterable[Measurement]) -> dict[str, int]:
    """Return the launches without an owner, by reason."""
    found: dict[str, int] = defaultdict(int)
    for m in measured:
        if m.metric.name == UNATTRIBUTED:
            found[str(dict(m.attributes)["otel_gpu.reason"])] += int(m.value)  # type: ignore[arg-type]
    return dict(found)


def of_processes(pids: Collection[int], found: Iterable[Found]) -> list[Found]:
    """Return the measurements or spans of these processes."""
    return [one for one in found if dict(one.resource.attributes).get("process.pid") in pids]
