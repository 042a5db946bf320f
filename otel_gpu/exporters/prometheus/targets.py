"""Which `job` and `instance` has each resource? Its own words, and no other's: a sample belongs to one process.

A processor may give several processes one `service.name` and `service.instance.id`. Who was there first keeps the name as
long as it is there, so that no series changes whose it is; another one's has its process's id behind it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import chain, count

from ...signals.metrics import Resource
from .names import labels

TARGET = frozenset({"service.name", "service.namespace", "service.instance.id"})

Labels = dict[str, str]
Claim = tuple[Hashable, str, str]
"""Who, and as whom."""


class Targets:
    """The targets of all resources of an exporter. Used by one thread at a time."""

    def __init__(self) -> None:
        self._instances: dict[Claim, str] = {}
        self._taken: dict[tuple[str, str], Claim] = {}

    def of(self, resource: Resource) -> tuple[Claim, Labels]:
        """Return who a resource is, to be told to `keep`, and its labels."""
        said = labels(tuple(one for one in resource.attributes if one[0] in TARGET))
        name, namespace = said.get("service_name", ""), said.get("service_namespace")
        job, claimed = f"{namespace}/{name}" if namespace else name, said.get("service_instance_id", "")
        pid = dict(resource.attributes).get("process.pid")
        # What is learnt of a process makes another resource of it, and no other process.
        claim = (resource if pid is None else pid, job, claimed)
        instance = self._instances.get(claim)
        if instance is None:
            instance = self._instances[claim] = self._free(job, claimed, pid)
            self._taken[job, instance] = claim
        found = {"job": job, "instance": instance}
        return claim, {key: value for key, value in found.items() if value}

    def keep(self, claims: Iterable[Claim]) -> None:
        """Forget all but these."""
        wanted = set(claims)
        self._instances = {claim: instance for claim, instance in self._instances.items() if claim in wanted}
        self._taken = {(claim[1], instance): claim for claim, instance in self._instances.items()}

    def _free(self, job: str, claimed: str, pid: object) -> str:
        others = () if pid is None else (f"{claimed}/{pid}",)
        numbered = (f"{claimed}/{pid or ''}#{number}" for number in count(2))
        return next(one for one in chain((claimed,), others, numbered) if (job, one) not in self._taken)
