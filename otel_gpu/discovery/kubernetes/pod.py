"""What is known of a pod? Values that are checked, bounded and printable, whatever they were made of."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...signals.structs import Frozen


class Pod(Frozen):
    """One pod, as Kubernetes last said it."""

    uid: str
    """As the API knows it."""
    cgroup_uid: str
    """As the kubelet names its control group: of a static pod another one."""
    name: str
    namespace: str
    node: str = ""
    owners: tuple[tuple[str, str], ...] = ()
    """Attributes of what it belongs to: `k8s.deployment.name` and the like."""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    containers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Names by the ids that their runtime gave them: those that ran before a restart too, as far as it is said."""
    requests: Mapping[str, int] = msgspec.field(default_factory=dict)
    """GPUs by the resource's name, for the whole pod."""
    limits: Mapping[str, int] = msgspec.field(default_factory=dict)
    is_over: bool = False
    """Whether all of its containers have ended for good: its GPUs may be another pod's."""

    def container(self, container_id: str) -> str | None:
        """Return the name of one of its containers; None where that is not known."""
        return self.containers.get(container_id)

    def may_hold(self, container_id: object) -> bool:
        """Say whether a container, None where a process is in none, may be its own: any may while none is known."""
        return container_id is not None and (not self.containers or container_id in self.containers)
