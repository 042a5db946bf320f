"""How do measurements, spans and profiles get another resource? Each that stands for theirs, asked for once in each batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace

from msgspec import structs

from ..components import Processor
from ..signals.metrics import Measurement, Resource
from ..signals.profiles import Profile, merge
from ..signals.spans import Span


class ResourceProcessor(Processor, ABC):
    """A processor that changes resources and nothing else."""

    @abstractmethod
    def resource(self, resource: Resource) -> Resource:
        """Return what stands for a resource from here on."""

    def metrics(self, measurements: list[Measurement]) -> list[Measurement]:
        """Return the measurements, each of the changed resource."""
        changed = self._all(m.resource for m in measurements)
        return [Measurement(changed[m.resource], m.metric, m.attributes, m.value) for m in measurements]

    def spans(self, spans: list[Span]) -> list[Span]:
        """Return the spans, each of the changed resource."""
        changed = self._all(span.resource for span in spans)
        return [structs.replace(span, resource=changed[span.resource]) for span in spans]

    def profiles(self, profiles: list[Profile]) -> list[Profile]:
        """Return the profiles, one of each type and changed resource."""
        changed = self._all(profile.resource for profile in profiles)
        return merge(replace(profile, resource=changed[profile.resource]) for profile in profiles)

    def _all(self, resources: Iterable[Resource]) -> dict[Resource, Resource]:
        return {resource: self.resource(resource) for resource in set(resources)}
