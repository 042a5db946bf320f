"""When do series end, where processors change what resources say? With the last process that they are of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..components.processors import ChangesResources, Learning, Processor
from ..runtime.supervision import Component
from ..signals.metrics import Resource


class Lifetimes:
    """Follows the resources of one pipeline: as they are measured, as each processor sees them, and as they leave.

    Used by one thread at a time.
    """

    def __init__(self, processors: Sequence[Processor], component: Component) -> None:
        """What a processor raises is noted as the component's failure; a resource is as it was then."""
        self._processors = processors
        self._component = component
        self.changes = any(isinstance(processor, ChangesResources) for processor in processors)
        """Whether what is measured of a process may be another resource's, or of several."""
        self._ways: dict[Resource, tuple[Resource, ...]] = {}
        """Of each that was measured: what the processors see, one after another, and what leaves the last."""
        self._alive: dict[Resource, set[Resource]] = {}
        """Of each that leaves: those that were measured."""
        self._ended: dict[Resource, None] = {}
        """In their order."""
        self._left: dict[Resource, None] = {}
        """Those behind which nobody stands any more, since a processor has learnt more of who that is."""
        self._known_before: list[tuple[int, tuple[Resource, ...]]] = []
        """The ways that led there, and from which place on it is another now."""

    def note(self, resources: Iterable[Resource]) -> None:
        """Take in who has been measured; what is measured of the ended belongs to what they had."""
        if not self.changes:
            return
        for resource in set(resources):
            if resource not in self._ended:
                self._alive.setdefault(self._way(resource)[-1], set()).add(resource)

    def end(self, resource: Resource) -> None:
        """Take in that a process has ended."""
        self._alive.get(self._way(resource)[-1], set()).discard(resource)
        self._ended[resource] = None

    def learn(self) -> list[tuple[Resource, Resource]]:
        """Have what is measured from now on be of what processors have learnt; what was measured stays where it is.

        Return of whom they have, each with what it was until now.
        """
        changed = []
        for place, processor in enumerate(self._processors):
            if not isinstance(processor, Learning):
                continue
            with self._component:
                learnt = processor.learnt()
                for resource in [one for one, way in self._ways.items() if way[place] in learnt]:
                    if resource in self._ended:
                        continue
                    way = self._ways.pop(resource)
                    leaving = way[-1]
                    self._known_before.append((place + 1, way))
                    changed.append((resource, leaving))
                    alive = self._alive.get(leaving, set())
                    alive.discard(resource)
                    if not alive:
                        self._alive.pop(leaving, None)
                        self._left[leaving] = None
        return changed

    def over(self) -> list[Resource]:
        """Return the resources of which no process is left."""
        leaving = dict.fromkeys((*self._left, *(self._way(resource)[-1] for resource in self._ended)))
        self._left.clear()
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
        for first, way in self._known_before:
            for place in range(first, len(self._processors)):
                if all(other[place] != way[place] for other in self._ways.values()):
                    yield self._processors[place], way[place]
        self._known_before.clear()
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
