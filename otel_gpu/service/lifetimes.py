"""When do series end, where processors change what resources say? With the last process that they are of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..components.processors import ChangesResources, Processor
from ..signals.metrics import Resource
from ..supervision import Component


class Lifetimes:
    """Follows the resources of one pipeline: as they are measured, as each processor sees them, and as they leave.

    Used by one thread at a time.
    """

    def __init__(self, processors: Sequence[Processor], component: Component) -> None:
        """What a processor raises is noted as the component's failure; a resource is as it was then."""
        self._processors = processors
        self._component = component
        self._changes = any(isinstance(processor, ChangesResources) for processor in processors)
        self._ways: dict[Resource, tuple[Resource, ...]] = {}
        """Of each that was measured: what the processors see, one after another, and what leaves the last."""
        self._alive: dict[Resource, set[Resource]] = {}
        """Of each that leaves: those that were measured."""
        self._ended: dict[Resource, None] = {}
        """In their order."""

    def note(self, resources: Iterable[Resource]) -> None:
        """Take in who has been measured; what is measured of the ended belongs to what they had."""
        if not self._changes:
            return
        for resource in set(resources):
            if resource not in self._ended:
                self._alive.setdefault(self._way(resource)[-1], set()).add(resource)

    def end(self, resource: Resource) -> None:
        """Take in that a process has ended."""
        self._alive.get(self._way(resource)[-1], set()).discard(resource)
        self._ended[resource] = None

    def over(self) -> list[Resource]:
        """Return the resources of which no process is left."""
        leaving = dict.fromkeys(self._way(resource)[-1] for resource in self._ended)
        return [resource for resource in leaving if not self._alive.get(resource)]

    def forget(self) -> Iterator[tuple[Processor, Resource]]:
        """Forget those that have ended, and yield what each processor is to forget."""
        for resource in self._ended:
            *seen, leaving = self._way(resource)
            others = [self._ways[other] for other in self._alive.get(leaving, ())]
            for place, processor in enumerate(self._processors):
                if all(way[place] != seen[place] for way in others):
                    yield processor, seen[place]
            if not others:
                self._alive.pop(leaving, None)
        for resource in self._ended:
            self._ways.pop(resource, None)
        self._ended.clear()

    def _way(self, resource: Resource) -> tuple[Resource, ...]:
        if (way := self._ways.get(resource)) is None:
            seen = [resource]
            for processor in self._processors:
                changed = seen[-1]
                if isinstance(processor, ChangesResources):
                    with self._component:
                        changed = processor.resource(changed)
                seen.append(changed)
            way = self._ways[resource] = tuple(seen)
        return way
