"""What does the JSON of a pod say? Read by msgspec, which leaves out what is not asked for; then checked and shortened.

The API server has checked it, a kubelet or whoever is asked in their place may not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

import msgspec

from ...text import escaped
from .pod import Pod

MAX_VALUE = 256
"""Characters kept of an annotation; what labels and names are has fewer."""
MAX_KEY = 253 + 1 + 63
"""A prefix, which is a name of DNS, a slash and a name."""
_MAX_LABELS = 128
_MAX_CONTAINERS = 256
_MAX_GPUS = 1 << 20
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}")
_STATIC = re.compile(r"[0-9a-f]{32}")
"""No pod that the API itself made has such an id, so that nobody's annotation can claim one of those."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_CONTAINER_ID = re.compile(r"[a-z0-9.+-]{1,64}://([0-9a-f]{64})")
_QUANTITY = re.compile(r"([0-9]{1,9})(k|M)?")
_SCALE = {None: 1, "k": 1000, "M": 1000_000}
_STATIC_UID = "kubernetes.io/config.mirror"
"""On the API's picture of a static pod: the id by which the kubelet knows it."""
_HASH = "pod-template-hash"
_OWNERS = {
    "ReplicaSet": "replicaset",
    "StatefulSet": "statefulset",
    "DaemonSet": "daemonset",
    "Job": "job",
    "ReplicationController": "replicationcontroller",
}
_SCHEDULED = re.compile(r"(.+)-([0-9]{8,9})")
"""A CronJob's Job is named by it and by the minute, since 1970, that it was scheduled for."""
_LATE_MIN = 7 * 24 * 60
"""How much later than that a pod of it may be made."""
_GPUS = re.compile(
    r"(nvidia\.com/(gpu|mig-)|amd\.com/(gpu|cpx|spx|dpx|qpx)|gpu\.intel\.com/|habana\.ai/)[a-z0-9._-]{0,63}"
)
"""Resources of device plugins that are GPUs, or parts of one."""


UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What is raised by JSON that is none, or not what it should be."""


class _Base(msgspec.Struct, rename="camel"):
    """Of the API's objects, what is read."""


class _Owner(_Base):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Metadata(_Base):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _Resources(_Base):
    requests: dict[str, str] | None = None
    limits: dict[str, str] | None = None


class _Container(_Base):
    name: str = ""
    resources: _Resources | None = None
    restart_policy: str | None = None


class _Spec(_Base):
    node_name: str = ""
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class _Ended(_Base):
    container_id: str = msgspec.field(name="containerID", default="")


class _State(_Base):
    terminated: _Ended | None = None


class _Status(_Base):
    name: str = ""
    container_id: str = msgspec.field(name="containerID", default="")
    last_state: _State | None = None


class _PodStatus(_Base):
    phase: str = ""
    container_statuses: list[_Status] | None = None
    init_container_statuses: list[_Status] | None = None
    ephemeral_container_statuses: list[_Status] | None = None


class PodObject(_Base):
    """A pod."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _ListMetadata(_Base):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class PodList(_Base):
    """An answer to list."""

    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)
    items: list[PodObject] | None = None


class Event(_Base):
    """One line of an answer to watch."""

    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


class Refusal(_Base):
    """Why the API does not do what was asked."""

    code: int = 0
    reason: str = ""
    message: str = ""


def pod_of(found: PodObject) -> Pod | None:
    """Return the pod; None for what cannot be one."""
    metadata, spec, status = found.metadata, found.spec, found.status
    if not (_UID.fullmatch(metadata.uid) and _NAME.fullmatch(metadata.name) and _NAME.fullmatch(metadata.namespace)):
        return None
    annotations = metadata.annotations or {}
    static = annotations.get(_STATIC_UID) or ""
    return Pod(
        uid=metadata.uid,
        cgroup_uid=static if _STATIC.fullmatch(static) else metadata.uid,
        name=metadata.name,
        namespace=metadata.namespace,
        node=spec.node_name if _NAME.fullmatch(spec.node_name) else "",
        owners=tuple(_owners(metadata)),
        labels=_texts(metadata.labels or {}),
        annotations=_texts(annotations),
        containers=_containers(status),
        requests=_needed(spec, lambda resources: resources.requests),
        limits=_needed(spec, lambda resources: resources.limits),
        is_over=status.phase in ("Succeeded", "Failed"),
    )


def _owners(metadata: _Metadata) -> Iterator[tuple[str, str]]:
    for owner in metadata.owner_references or ():
        kind = _OWNERS.get(owner.kind)
        if not owner.controller or kind is None or not _NAME.fullmatch(owner.name):
            continue
        yield f"k8s.{kind}.name", owner.name
        if _UID.fullmatch(owner.uid):
            yield f"k8s.{kind}.uid", owner.uid
        if owner.kind == "ReplicaSet":
            # Who made the replica set says it by this label; a replica set of its own has none.
            name, dash, hashed = owner.name.rpartition("-")
            if dash and name and hashed == (metadata.labels or {}).get(_HASH):
                yield "k8s.deployment.name", name
        if owner.kind == "Job" and (cron_job := _cron_job(owner.name, metadata.creation_timestamp)):
            yield "k8s.cronjob.name", cron_job
        return


def _cron_job(job: str, created: str | None) -> str | None:
    """Return whose Job it is, told by a name that ends with the time at which it was due."""
    scheduled = _SCHEDULED.fullmatch(job)
    if scheduled is None or created is None:
        return None
    try:
        created_min = datetime.fromisoformat(created.replace("Z", "+00:00")).timestamp() / 60
    except ValueError:
        return None
    return scheduled[1] if -2 <= created_min - int(scheduled[2]) <= _LATE_MIN else None


def _texts(found: Mapping[str, str]) -> dict[str, str]:
    first = sorted(found)[:_MAX_LABELS]
    return {escaped(key, MAX_KEY): escaped(found[key], MAX_VALUE) for key in first}


def _containers(status: _PodStatus) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in (status.ephemeral_container_statuses, status.init_container_statuses, status.container_statuses):
        for one in each or ():
            before = one.last_state.terminated if one.last_state else None
            for said in (before.container_id if before else "", one.container_id):
                if (known := _CONTAINER_ID.fullmatch(said)) and _NAME.fullmatch(one.name):
                    found[known[1]] = one.name
    return dict(list(found.items())[-_MAX_CONTAINERS:])


def _needed(spec: _Spec, choose: Callable[[_Resources], dict[str, str] | None]) -> dict[str, int]:
    """Return what a pod needs as the scheduler reckons: all containers together, or one that runs before them, if that is more.

    Containers that run before the others and stay (`restartPolicy: Always`) count with all that come after them.
    """
    total: dict[str, int] = {}
    staying: dict[str, int] = {}
    most: dict[str, int] = {}

    def of(container: _Container) -> Iterator[tuple[str, int]]:
        yield from _gpus((choose(container.resources) if container.resources else None) or {})

    for container in spec.containers or ():
        for name, count in of(container):
            total[name] = total.get(name, 0) + count
    for container in spec.init_containers or ():
        for name, count in of(container):
            if container.restart_policy == "Always":
                staying[name] = staying.get(name, 0) + count
                most[name] = max(most.get(name, 0), staying[name])
            else:
                most[name] = max(most.get(name, 0), staying.get(name, 0) + count)
    names = sorted({*total, *most, *staying})[:_MAX_LABELS]
    return {name: max(total.get(name, 0) + staying.get(name, 0), most.get(name, 0)) for name in names}


def _gpus(resources: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    for name, quantity in resources.items():
        count = _QUANTITY.fullmatch(quantity)
        if count and is_gpu(name):
            yield name, min(int(count[1]) * _SCALE[count[2]], _MAX_GPUS)


def is_gpu(resource: str) -> bool:
    """Say whether a resource's name is that of GPUs or parts of them."""
    return _GPUS.fullmatch(resource) is not None
