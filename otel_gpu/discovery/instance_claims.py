"""One `service.instance.id` for each process, when several report the same one in their own environment.

Ranks of a container inherit one OTEL_RESOURCE_ATTRIBUTES. Prometheus makes `job` and `instance` of a resource, so that two such
processes would be one target, and their samples one series.
"""

from __future__ import annotations

import threading

import msgspec

from ..signals.metrics import AttributeValue, Resource, attributes
from ..signals.structs import Record

_INSTANCE = "service.instance.id"
_MAX_CLAIMS = 65_536

Claim = tuple[str, str]
"""Prometheus's `job` and `instance`."""


class _Holder(Record):
    pid: AttributeValue | None
    resources: set[Resource] = msgspec.field(default_factory=set)
    """A process has one for each program that it runs, from exec to exec."""


class InstanceClaims:
    """The ids that processes hold. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: dict[Claim, _Holder] = {}

    def take(self, resource: Resource, fallback: str) -> Resource:
        """Return the resource under an id that no other process holds until `release`.

        The first process keeps the id that it reports. Another has its pid behind it, or `fallback`, an id of its own,
        if a further process holds that too.
        """
        known = dict(resource.attributes)
        pid, reported = known.get("process.pid"), str(known[_INSTANCE])
        with self._lock:
            for instance in (reported, f"{reported}/{pid}"):
                claim = (_job(known), instance)
                holder = self._holders.get(claim)
                if holder is None and len(self._holders) < _MAX_CLAIMS:
                    holder = self._holders[claim] = _Holder(pid)
                if holder is not None and holder.pid == pid:
                    taken = resource if instance == reported else _renamed(resource, instance)
                    holder.resources.add(taken)
                    return taken
        return _renamed(resource, fallback)

    def release(self, resource: Resource) -> None:
        """Let others have the id of a program whose series have ended; a resource without a claim changes nothing."""
        known = dict(resource.attributes)
        claim = (_job(known), str(known.get(_INSTANCE, "")))
        with self._lock:
            holder = self._holders.get(claim)
            if holder is not None:
                holder.resources.discard(resource)
                if not holder.resources:
                    del self._holders[claim]


def _job(known: dict[str, AttributeValue]) -> str:
    name, namespace = known.get("service.name", ""), known.get("service.namespace")
    return f"{namespace}/{name}" if namespace else str(name)


def _renamed(resource: Resource, instance: str) -> Resource:
    return Resource(attributes({**dict(resource.attributes), _INSTANCE: instance}), resource.is_selected)
