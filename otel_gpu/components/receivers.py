"""What is a receiver, and how is one made? It turns what it reads of the kernel, or of a library, into what flows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..bpf.needs import Check, Needs, checks_nothing, needs_nothing
from ..runtime.supervision import Health
from ..signals import Signal
from ..signals.metrics import Measurement, MetricSpec, Resource, SelfReading
from ..signals.spans import SpanSpec
from ..signals.telemetry import AttributeSpec
from .processors import Processor

if TYPE_CHECKING:
    from ..discovery.kubernetes.pods import Pods
    from ..discovery.libraries import Library
    from ..discovery.process_devices import DeviceTable
    from ..discovery.processes import ProcessTable
    from ..probes.counted import Counted
    from ..sandbox.files import File
    from ..sandbox.parsers import Parsers
    from ..signals.profiles import Profile, ProfileType
    from ..signals.spans import Span
    from .counting.request_spans import RequestSpans
    from .counting.shared import Counting


class Receiver(Protocol):
    """What the agent asks of every receiver, beside the method of each signal that its factory names."""

    def close(self) -> None:
        """Release everything; idempotent."""


@runtime_checkable
class GivesMetrics(Protocol):
    """A receiver of metrics."""

    def collect(self) -> list[Measurement]:
        """Return what was measured since the last call."""


@runtime_checkable
class GivesSpans(Protocol):
    """A receiver of traces."""

    def spans(self, *, last: bool = False) -> list[Span]:
        """Return the spans that ended since the last call; with `last`, also those that have not, marked as cut."""


@runtime_checkable
class GivesProfiles(Protocol):
    """A receiver of profiles."""

    def profiles(self, *, last: bool = False) -> list[Profile]:
        """Return what was sampled since the last call, one profile a process and type; with `last`, all that there is."""


@runtime_checkable
class Supervised(Protocol):
    """A part that says how it is."""

    def health(self) -> Iterable[Health]:
        """Say of everything within whether it does its work."""


@runtime_checkable
class SelfMeasuring(Protocol):
    """A part that measures itself."""

    def readings(self) -> Iterable[SelfReading]:
        """Yield what it measured of itself: of counters the total since the start."""


@runtime_checkable
class Preparing(Protocol):
    """A receiver that begins to read before others are read."""

    def prepare(self) -> None:
        """Begin to read what `collect` will return."""


class LibraryReceiver:
    """A receiver that places probes in libraries which processes map. Called by several threads at once."""

    def installed(self) -> Iterable[tuple[Library, File, str]]:
        """Return libraries of this host to attach to before any process has mapped them, and each one's path."""
        return ()

    def observe(self, pid: int) -> None:
        """Look at a process that has mapped code; again after it mapped more."""

    def attach(self, _library: Library, _file: File) -> int | None:
        """Place probes in a library, once; return when they were in place, by the monotonic clock, if there are any."""
        return None

    def detach(self, library: Library) -> None:
        """Take the probes out of a library that nobody uses any more."""

    def retry(self) -> None:
        """Place probes for which there were too few descriptors, or too little memory, where there is room now."""

    def place_no_more(self) -> None:
        """Place no further probes, without a wait; those that are in place still count."""

    def hurry(self, timeout_s: float) -> None:
        """Have what is being collected wait no longer than that."""

    def settle(self, timeout_s: float) -> None:
        """Wait for what is still looked up a last time: from now on nothing is waited for, or held back."""

    def is_ready(self, _pids: Collection[int]) -> bool:
        """Say whether all that a first look needs of these processes has been read."""
        return True

    def detach_all(self) -> None:
        """Take away the probes, and leave everything else to a thread that may still use it; idempotent."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a receiver shares with the others of its agent."""

    host: Resource
    """What every series of this host carries."""
    agent: Resource
    """The agent itself, as its own series carry it."""
    observed: Callable[[], Iterable[Resource]]
    """The observed processes that run, as their series carry them: `process.pid`, `service.name`, `container.id`, …"""
    processes: ProcessTable
    """The same, with all that is known of them."""
    parsers: Parsers
    """Children without rights, in which what comes from other processes is read."""
    pids: tuple[int, ...]
    """The only processes that are observed; empty for all."""
    follows_children: bool
    """Whether those are observed as well that come of them."""
    is_chosen: Callable[[int], bool]
    """Whether a process is one of these."""
    devices: DeviceTable
    """Which GPUs are theirs."""
    table_share: float
    """Which part of their usual size tables in the kernel are to have."""
    types: frozenset[str]
    """Of all receivers that the configuration uses."""
    counting: Callable[[], Counting]
    """What counts in the kernel, at least what the factory's `counted` says; UnsupportedKernelError where it cannot."""
    request_spans: RequestSpans
    """Which spans requests have, told by who follows them."""
    complete: Callable[[Processor], None]
    """Has what every receiver measured pass a processor, before any pipeline."""
    pods: Callable[[], Pods]
    """What Kubernetes says of the pods of this node, where the factory's `needs_pods` says that it is wanted."""
    readings: Callable[[], Iterable[SelfReading]]
    """What all parts of the agent measure of themselves,"""
    health: Callable[[], Iterable[Health]]
    """and how they are."""


def counts_nothing(_settings: object) -> None:
    """Say that nothing need be counted in the kernel for a receiver."""


@dataclass(frozen=True, slots=True)
class ReceiverFactory:
    """A type of receivers."""

    settings: type
    """A frozen dataclass whose fields have defaults, or must be set."""
    create: Callable[[Context, Any], Receiver]
    """From the context and the settings; OtelGpuError where that cannot be."""
    metrics: tuple[MetricSpec, ...] = ()
    """All that it may measure."""
    attributes: tuple[AttributeSpec, ...] = ()
    """Those attributes of its metrics and spans that are its own."""
    why_one: str | None = None
    """Why there can be only one of it, in a few words; None: there may be several."""
    signals: tuple[Signal, ...] = ("metrics",)
    """What it gives: metrics by `collect`, traces by `spans`, profiles by `profiles`."""
    spans: tuple[SpanSpec, ...] = ()
    """All spans that it may give."""
    profiles: tuple[ProfileType, ...] = ()
    """All types of profiles that it may give."""
    needs_pods: bool = False
    """Whether it wants to know the pods of this node."""
    places_probes: bool = False
    """Whether it loads programs into the kernel, which takes rights, descriptors and memory."""
    needs: Callable[[Any], Needs] = needs_nothing
    """What it needs of the host with these settings."""
    checks: Callable[[], Iterable[Check]] = checks_nothing
    """Looks whether the host has what it observes, for `otel-gpu doctor`."""
    counted: Callable[[Any], Counted | None] = counts_nothing
    """How much must be counted in the kernel for it with these settings: `Context.counting` has it."""
    counts_for_others: Callable[[Counted], object] | None = None
    """Of the receiver that is `Context.counting`: settings with which it counts so much, where the configuration has none."""
    reads_last: bool = False
    """Whether it is read when all others have been: what it measures is the agent."""
