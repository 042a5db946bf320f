"""Which pod is a process in, and whose is that? Told by the ids in its control group alone, which are never given twice.

No name and no address decides it, so that a process has the right pod or none. What Kubernetes says goes before what the
process says of itself; of one that is in no pod, what it says of pods is left out. Where Kubernetes has not said anything yet,
because it does not answer or the pod is new, a series begins with the ids alone, and ends for one with the names when they
are known. From then on it stays as it is: labels that change, and pods that are deleted, do not change the series
of a process that lives.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

from ...discovery.kubernetes.pod import Pod
from ...discovery.kubernetes.table import PodTable
from ...discovery.selection import matches
from ...signals.metrics import AttributeValue, Resource, attributes
from ...signals.observed import plain
from ..resources import ResourceProcessor
from .settings import Extract, Field, Metadata

_POD, _CONTAINER = "k8s.pod.uid", "container.id"
_MAX_FIELDS = 64
"""Labels, and annotations, of a pod that one pattern and another choose."""
_OF_PODS = frozenset(plain(key) for key in get_args(Metadata)) - {plain(_POD), plain("k8s.node.name")}
_SAID_PREFIXES = (plain("k8s.pod.label."), plain("k8s.pod.annotation."))


class PodAttributes(ResourceProcessor):
    """Adds to resources what Kubernetes says of their pods."""

    def __init__(self, table: PodTable, extract: Extract, *, remembers: bool = True) -> None:
        """`remembers`: what was said of a resource stays so until it is forgotten."""
        self._table = table
        self._extract = extract
        self._remembers = remembers
        self._known: dict[Resource, Resource] = {}
        self._wanting: dict[Resource, int] = {}
        """Those of which there may be more to learn, and how much is known: 0 nothing, 1 the pod."""
        self._changes = -1

    def resource(self, resource: Resource) -> Resource:
        """Return what stands for a resource from here on."""
        known = self._known.get(resource)
        if known is None:
            known, level = self._asked(resource)
            if self._remembers:
                self._known[resource] = known
                if level < 2:
                    self._wanting[resource] = level
        return known

    def learnt(self) -> Collection[Resource]:
        """Return the resources of which more is known than before."""
        if self._changes == self._table.changes or not self._wanting:
            return ()
        self._changes = self._table.changes
        learnt = set()
        for resource, before in list(self._wanting.items()):
            known, level = self._asked(resource)
            if level <= before:
                continue
            if level == 2:
                del self._wanting[resource]
            else:
                self._wanting[resource] = level
            if known != self._known[resource]:
                self._known[resource] = known
                learnt.add(resource)
        return learnt

    def forget(self, resource: Resource) -> None:
        """Drop what is remembered of one that has ended."""
        self._known.pop(resource, None)
        self._wanting.pop(resource, None)

    def _asked(self, resource: Resource) -> tuple[Resource, int]:
        """Return what is known of a resource now, and how much of what there is: 2 all, 1 not the container, 0 not the pod."""
        said = dict(resource.attributes)
        if "process.pid" not in said:
            # The agent's own, and what is of the whole host or of a pod itself.
            return resource, 2
        uid = said.get(_POD)
        if not isinstance(uid, str):
            return Resource(attributes(_without_pods(said)), resource.is_selected), 2
        pod = self._table.find(uid)
        if pod is None:
            return resource, 0
        container_id = said.get(_CONTAINER)
        if not pod.may_hold(container_id):
            # A container that has just begun; or the process said itself that this is its pod.
            return resource, 0
        container = pod.container(str(container_id))
        known = {**_without_pods(said), **self._said_of(pod, container)}
        return Resource(attributes(known), resource.is_selected), 1 if container is None else 2

    def _said_of(self, pod: Pod, container: str | None) -> dict[str, AttributeValue]:
        everything: dict[str, AttributeValue] = {
            "k8s.namespace.name": pod.namespace,
            "k8s.pod.name": pod.name,
            "k8s.pod.uid": pod.uid,
            **dict(pod.owners),
        }
        if pod.node:
            everything["k8s.node.name"] = pod.node
        if container is not None:
            everything["k8s.container.name"] = container
        found: dict[str, AttributeValue] = {key: everything[key] for key in self._extract.metadata if key in everything}
        for kind, texts, fields in (
            ("label", pod.labels, self._extract.labels),
            ("annotation", pod.annotations, self._extract.annotations),
        ):
            chosen = {
                chosen_field.tag_name or f"k8s.pod.{kind}.{key}": value
                for chosen_field in fields
                for key, value in texts.items()
                if _is_chosen(chosen_field, key)
            }
            found.update(list(chosen.items())[:_MAX_FIELDS])
        return found


def _is_chosen(chosen: Field, key: str) -> bool:
    return matches(chosen.key, key) if "*" in chosen.key else chosen.key == key


def _without_pods(said: dict[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Leave out what a process says of the pod that it is in, however it spells it: Kubernetes says that."""
    return {
        key: value
        for key, value in said.items()
        if (shown := plain(key)) not in _OF_PODS and not shown.startswith(_SAID_PREFIXES)
    }
