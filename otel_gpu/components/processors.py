"""What is a processor, and how is one made? It adds what receivers cannot know, or takes detail away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..bpf.needs import Needs, needs_nothing
from ..signals import Signal
from ..signals.metrics import Measurement, MetricSpec, Resource

if TYPE_CHECKING:
    from ..discovery.kubernetes.pods import Pods
    from ..signals.profiles import Profile
    from ..signals.spans import Span


class Processor:
    """What the agent asks of a processor: whatever has one of these methods will do, whether or not it is of this class.

    Its factory names the signals that it processes. A pipeline has its own processors, and calls them from one thread.
    """

    def metrics(self, measurements: list[Measurement]) -> list[Measurement]:
        """Return the measurements to hand on."""
        return measurements

    def spans(self, spans: list[Span]) -> list[Span]:
        """Return the spans to hand on."""
        return spans

    def profiles(self, profiles: list[Profile]) -> list[Profile]:
        """Return the profiles to hand on."""
        return profiles

    def forget(self, resource: Resource) -> None:
        """Drop what is remembered of a resource that has ended."""


@runtime_checkable
class ChangesResources(Protocol):
    """A processor that hands on other resources than it gets. Without this word of it, their series would never end."""

    def resource(self, resource: Resource) -> Resource:
        """Return what stands for a resource behind this processor: always the same for the same, but for what it has `learnt`."""


@runtime_checkable
class Learning(Protocol):
    """A processor that learns, as time goes by, more of what it says of resources."""

    def learnt(self) -> Collection[Resource]:
        """Return the resources, of those that it was asked for, that it hands on otherwise from now on; each once."""


def kept_none(_settings: object) -> int:
    """Say that a processor has no part in what kernels are called."""
    return 0


@dataclass(frozen=True, slots=True)
class ProcessorContext:
    """What a processor is told of where it stands."""

    name: str
    """Its id in the configuration."""
    signal: Signal
    """Of its pipeline."""
    host: Resource
    """What every series of this host carries."""
    observed: Callable[[], Iterable[Resource]]
    """The observed processes that run, as their series carry them."""
    pods: Callable[[], Pods]
    """What Kubernetes says of the pods of this node, where the factory's `needs_pods` says that it is wanted."""


@dataclass(frozen=True, slots=True)
class ProcessorFactory:
    """A type of processors. Every pipeline has its own."""

    settings: type
    create: Callable[[ProcessorContext, Any], Processor]
    """From the context and the settings; OtelGpuError where that cannot be."""
    signals: tuple[Signal, ...] = ("metrics",)
    """In pipelines of which it may stand."""
    needs: Callable[[Any], Needs] = needs_nothing
    """What it needs of the host with these settings."""
    needs_pods: bool = False
    """Whether it wants to know the pods of this node."""
    kernels_kept: Callable[[Any], int] = kept_none
    """How many kernels of a process keep their names with these settings: there is to be room for their series."""
    metrics: tuple[MetricSpec, ...] = ()
    """What it measures of itself: what has `readings`, as receivers may have it, is asked for them. Those of counters are added
    up over the pipelines that it stands in."""
