"""What else is to be said of who a process is, and what is not? What the configuration adds, changes and takes away.

Processes of which nothing is left that tells them apart are one: their counts and their profiles are added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...components import Processor
from ...signals.metrics import Measurement, Resource, attributes
from ...signals.profiles import Profile, merge
from ...signals.spans import Span
from .settings import AttributeAction


class ResourceAttributes(Processor):
    """Changes the attributes of every resource in the same way."""

    def __init__(self, actions: Sequence[AttributeAction]) -> None:
        """Take what is done, in its order."""
        self._actions = actions

    def resource(self, resource: Resource) -> Resource:
        """Return what stands for a resource from here on."""
        known = dict(resource.attributes)
        for action in self._actions:
            if action.action == "delete":
                known.pop(action.key, None)
                continue
            value = action.value if action.from_attribute is None else known.get(action.from_attribute)
            if value is None or (action.action != "upsert" and (action.key in known) != (action.action == "update")):
                continue
            known[action.key] = value
        return Resource(attributes(known))

    def metrics(self, measurements: list[Measurement]) -> list[Measurement]:
        """Return the measurements, each of the changed resource."""
        changed = self._all(m.resource for m in measurements)
        return [Measurement(changed[m.resource], m.metric, m.attributes, m.value) for m in measurements]

    def spans(self, spans: list[Span]) -> list[Span]:
        """Return the spans, each of the changed resource."""
        changed = self._all(span.resource for span in spans)
        return [replace(span, resource=changed[span.resource]) for span in spans]

    def profiles(self, profiles: list[Profile]) -> list[Profile]:
        """Return the profiles, one of each type and changed resource."""
        changed = self._all(profile.resource for profile in profiles)
        return merge(replace(profile, resource=changed[profile.resource]) for profile in profiles)

    def _all(self, resources: Iterable[Resource]) -> dict[Resource, Resource]:
        return {resource: self.resource(resource) for resource in set(resources)}
