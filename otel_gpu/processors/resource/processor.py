"""What else is to be said of who a process is, and what is not? What the configuration adds, changes and takes away.

Processes of which nothing is left that tells them apart are one: their counts and their profiles are added up.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...signals.metrics import Resource, attributes
from ..resources import ResourceProcessor
from .settings import AttributeAction


class ResourceAttributes(ResourceProcessor):
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
