"""What can be set of what is said of a process's pod?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from ...errors import ConfigError
from ...signals.observed import is_observed

Metadata = Literal[
    "k8s.namespace.name",
    "k8s.pod.name",
    "k8s.pod.uid",
    "k8s.node.name",
    "k8s.container.name",
    "k8s.deployment.name",
    "k8s.replicaset.name",
    "k8s.replicaset.uid",
    "k8s.statefulset.name",
    "k8s.statefulset.uid",
    "k8s.daemonset.name",
    "k8s.daemonset.uid",
    "k8s.job.name",
    "k8s.job.uid",
    "k8s.cronjob.name",
    "k8s.replicationcontroller.name",
    "k8s.replicationcontroller.uid",
]
_DEFAULT: tuple[Metadata, ...] = (
    "k8s.namespace.name",
    "k8s.pod.name",
    "k8s.pod.uid",
    "k8s.node.name",
    "k8s.container.name",
    "k8s.deployment.name",
    "k8s.replicaset.name",
    "k8s.statefulset.name",
    "k8s.daemonset.name",
    "k8s.job.name",
    "k8s.cronjob.name",
)


@dataclass(frozen=True, slots=True)
class Field:
    """A label or an annotation that is chosen."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=400)]
    """`*` stands for any characters."""
    tag_name: str = ""
    """What it is called; empty: `k8s.pod.label.KEY`, `k8s.pod.annotation.KEY`."""

    def __post_init__(self) -> None:
        if self.tag_name and is_observed(self.tag_name):
            raise ConfigError(f"tag_name: {self.tag_name} is observed, and no pod says it; take another name")
        if self.tag_name and "*" in self.key:
            raise ConfigError(f"tag_name: {self.key!r} may be several, which cannot have one name; leave it out")


@dataclass(frozen=True, slots=True)
class Extract:
    """`processors.kubernetes.extract`."""

    metadata: tuple[Metadata, ...] = _DEFAULT
    """Names and owners."""
    labels: tuple[Field, ...] = ()
    """Labels of the pod; 64 of them at most."""
    annotations: tuple[Field, ...] = ()
    """Annotations of the pod; 64 of them at most."""


@dataclass(frozen=True, slots=True)
class KubernetesProcessorSettings:
    """`processors.kubernetes`; where pods are asked for stands in `discovery.kubernetes`."""

    extract: Extract = field(default_factory=Extract)
    """What is said, in the words of the Collector's `k8sattributes`."""
