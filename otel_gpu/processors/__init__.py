"""What can receivers not know? Processors add it to what was observed, or take detail away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..signals.metrics import Measurement, Resource

if TYPE_CHECKING:
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
        """Return what stands for a resource behind this processor: always the same for the same."""
