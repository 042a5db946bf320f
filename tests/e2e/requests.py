"""How are the requests of a program followed without an agent? By the receivers that it takes, observing as an agent's do."""

from __future__ import annotations

import subprocess
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from types import TracebackType
from typing import TypeVar

from otel_gpu.discovery.identification import Identification
from otel_gpu.discovery.processes import Process
from otel_gpu.discovery.procfs import is_alive
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


class _Observing:
    """The receivers, and what watches for them."""

    def __init__(self, pids: Sequence[int], late: Sequence[int] = (), *, follows_children: bool = False) -> None:
        """Begin; `late` are those of the processes that are known to have been there before."""
        wanted = {"cuda": CudaSettings(map_entries=8192), "inference": InferenceSettings()}
        self.observation = Observation(wanted, pids=tuple(pids), follows_children=follows_children)
        for pid in late:
            self.observation.processes.observe(pid, late=True)
        self.observation.open()
        cuda, requests = self.observation.find(CudaReceiver), self.observation.find(InferenceReceiver)
        assert cuda is not None
        assert requests is not None
        self.cuda, self.requests = cuda, requests
        self._came = threading.Condition()
        self._attached: set[int] = set()
        self.observation.watch(on_attached=self._on_attached)
        for pid in late:
            self.observation.observe(pid)

    def _on_attached(self, process: Process, *_: object) -> None:
        with self._came:
            self._attached.add(process.pid)
            self._came.notify_all()

    def wait_attached(self, pids: Sequence[int]) -> None:
        """Wait until a library of one of these processes is probed."""
        with self._came:
            assert self._came.wait_for(lambda: not self._attached.isdisjoint(pids), DEADLINE_S)

    def stop(self) -> None:
        """Let go of everything."""
        ending = Ending(DEADLINE_S)
        self.observation.stop_watching(ending)
        self.observation.release(ending)


class Observer:
    """What one program after another is followed by, as by an agent that goes on: its start takes longer than most tests.

    A context manager.
    """

    def __init__(self) -> None:
        # Nothing comes of it: programs are added to what is followed as they come.
        self._root = subprocess.Popen(["sleep", "infinity"])
        try:
            self.observing = _Observing([self._root.pid], follows_children=True)
        except BaseException:
            self._end_root()
            raise

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.observing.stop()
        self._end_root()

    def _end_root(self) -> None:
        self._root.kill()
        self._root.wait()

    def add(self, pids: Sequence[int]) -> None:
        """Follow programs that run already."""
        observation = self.observing.observation
        assert observation.followed is not None
        assert observation._watcher is not None
        for pid in pids:
            observation.followed._add(pid)
            observation.processes.observe(pid, late=True)
        for pid in pids:
            observation.observe(pid)
        observation._watcher.scan()


class Following:
    """Follows the requests of programs. A context manager."""

    def __init__(self, pids: Sequence[int], feeding: Sequence[int] = (), observer: Observer | None = None) -> None:
        """`feeding` are processes that it shall find by what they send to the others.

        It observes by itself, as an agent that begins now, where there is no `observer`.
        """
        self._pids = (*pids, *feeding)
        self._observer = observer
        self._observing = observer.observing if observer is not None else _Observing(self._pids, pids)
        self._observation = self._observing.observation
        self.cuda, self.requests = self._observing.cuda, self._observing.requests
        self.measured: list[Measurement] = []
        self.spans: list[Span] = []
        self._ambiguous = self.requests.engines.ambiguous
        if observer is not None:
            observer.add(pids)

    def __enter__(self) -> Following:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._observer is None:
            self._observing.stop()

    def wait_followed(self) -> None:
        """Wait until the driver is probed, and the requests of every program are followed and believed."""
        self.wait_followed_at_first()
        until(lambda: all(map(self.requests.followed.is_trusted, self._pids)), "a program is not trusted")

    def wait_followed_at_first(self) -> None:
        """Wait until the driver is probed, and the requests of every program are followed."""
        self._observing.wait_attached(self._pids)
        until(lambda: all(map(self.requests.followed.is_followed, self._pids)), "a program is not followed")

    def has_published(self, pid: int) -> bool:
        """Tell whether what a process publishes of itself was read."""
        process = self._observation.processes.current(pid)
        identity = process.identity if process is not None else None
        return isinstance(identity, Identification) and bool(identity.published)

    def take(self) -> None:
        """Take what was measured so far."""
        self.measured += self._own(self.cuda.collect())
        self.measured += self._own(self.requests.collect())
        self.take_spans()

    def take_spans(self) -> None:
        """Take the spans that are over so far."""
        self.spans += self._own(self.requests.spans())

    def _own(self, found: list[Found]) -> list[Found]:
        return of_processes(self._pids, found) if self._observer is not None else found

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
            self.take_spans()
            return len(self.servers) >= count

        until(are_told, lambda: f"{len(self.servers)} of {count} requests were told: {self.requests.health()}")
        # Who a program is is asked with its first counts, as an agent does soon; until then it is looked at again and again.
        self.take()

    def end(self) -> None:
        """Take what is left, as an agent that ends, or as one that goes on, of programs that have ended or are at rest."""
        self.requests.settle(DEADLINE_S)
        # Counts of kernels whose names are looked for are held back.
        if self._observer is None:
            self.cuda.settle(DEADLINE_S)
        elif any(map(is_alive, self._pids)):
            self.cuda._resolver.settle(DEADLINE_S)
        else:
            until(self._are_over, "the programs have not ended")
        self.take()

    def _are_over(self) -> bool:
        processes = self._observation.processes
        ended = processes.ended()
        self.take()
        self.take()
        for process in ended:
            processes.forget(process)
        return all(processes.current(pid) is None for pid in self._pids)

    @property
    def ambiguous(self) -> int:
        """How many messages were not told from others."""
        return self.requests.engines.ambiguous - self._ambiguous

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
