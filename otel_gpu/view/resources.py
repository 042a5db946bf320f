"""Whose are series, spans and profiles? Resources, each known once, with a name that tells it from others."""

from __future__ import annotations

from collections.abc import Iterator

from ..signals.frame_names import process_name
from ..signals.metrics import Attributes, Resource
from ..signals.structs import Record
from .losses import Losses, Reason
from .settings import Bounds

_PID, _SERVICE = "process.pid", "service.name"
_AGENT = "otel-gpu"


class ResourceEntry(Record):
    """A resource, and the number that it goes by here."""

    number: int
    resource: Resource
    name: str
    seen_ns: int = 0

    @property
    def is_agent(self) -> bool:
        """Whether it is an agent, and not what one observes."""
        return dict(self.resource.attributes).get(_SERVICE) == _AGENT

    @property
    def is_process(self) -> bool:
        """Whether it is one of the observed processes."""
        return not self.is_agent and any(key == _PID for key, _ in self.resource.attributes)


class Resources:
    """All resources. Guarded by whoever owns it."""

    def __init__(self, bounds: Bounds, losses: Losses) -> None:
        self._bounds, self._losses = bounds, losses
        self._by_attributes: dict[Attributes, ResourceEntry] = {}
        self._by_number: dict[int, ResourceEntry] = {}
        self._last = 0

    def __iter__(self) -> Iterator[ResourceEntry]:
        return iter(self._by_number.values())

    def get(self, number: int) -> ResourceEntry | None:
        """Return a resource by its number."""
        return self._by_number.get(number)

    def entry(self, attributes: Attributes, now_ns: int, points: int = 1) -> ResourceEntry | None:
        """Return the resource of these attributes; None where there is no room, which is counted by its points."""
        found = self._by_attributes.get(attributes)
        if found is None:
            if len(self._by_attributes) >= self._bounds.resources:
                self._losses.add(Reason.RESOURCES, points)
                return None
            self._last += 1
            resource = Resource(attributes)
            found = ResourceEntry(self._last, resource, process_name(resource))
            self._by_attributes[attributes] = self._by_number[self._last] = found
        found.seen_ns = now_ns
        return found

    def keep_only(self, used: set[int], since_ns: int) -> None:
        """Forget resources that nothing is kept of, and that were not heard of since."""
        for number, entry in list(self._by_number.items()):
            if number not in used and entry.seen_ns < since_ns:
                del self._by_number[number]
                del self._by_attributes[entry.resource.attributes]
