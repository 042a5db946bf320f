"""What Kubernetes says of pods, or whoever answers in its place: JSON of the API server, messages of the kubelet."""

from __future__ import annotations

import json

import msgspec
from google.protobuf.message import DecodeError

from otel_gpu.discovery.kubernetes.devices import _of
from otel_gpu.discovery.kubernetes.messages import response_class
from otel_gpu.discovery.kubernetes.objects import MAX_KEY, MAX_VALUE, UNREADABLE, Event, PodList, PodObject, pod_of
from otel_gpu.discovery.kubernetes.pod import Pod
from otel_gpu.discovery.kubernetes.table import PodTable

from .target import Target

_ID = "0123456789abcdef" * 4
_UID = "01234567-89ab-cdef-0123-456789abcdef"
_OWNER = {"kind": "ReplicaSet", "name": "web-5d4f8c7b9", "uid": _UID, "controller": True}
_NEEDS = {"requests": {"nvidia.com/gpu": "2", "cpu": "1"}, "limits": {"nvidia.com/mig-1g.5gb": "1k"}}
_POD = {
    "metadata": {
        "name": "web-5d4f8c7b9-x2x4z", "namespace": "shop", "uid": _UID, "resourceVersion": "6",
        "creationTimestamp": "2025-11-29T00:00:07Z", "ownerReferences": [_OWNER],
        "labels": {"pod-template-hash": "5d4f8c7b9", "team": "a"},
        "annotations": {"kubernetes.io/config.mirror": "0123456789abcdef" * 2},
    },
    "spec": {
        "nodeName": "node-a", "containers": [{"name": "main", "resources": _NEEDS}],
        "initContainers": [{"name": "before", "resources": _NEEDS, "restartPolicy": "Always"}],
    },
    "status": {
        "phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}],
        "containerStatuses": [
            {"name": "main", "containerID": f"containerd://{_ID}",
             "lastState": {"terminated": {"containerID": f"containerd://{_ID[::-1]}"}}},
        ],
    },
}  # fmt: skip


def _put(table: PodTable, found: PodObject) -> None:
    pod = pod_of(found)
    if pod is None:
        table.refuse()
        return
    _check(pod)
    table.put(pod)
    assert table.find(pod.cgroup_uid) in (pod, None)
    table.delete(pod)


def _check(pod: Pod) -> None:
    names = (pod.name, pod.namespace, pod.node, pod.cgroup_uid, *dict(pod.owners).values(), *pod.containers.values())
    texts = (*pod.labels.values(), *pod.annotations.values())
    keys = (*pod.labels, *pod.annotations)
    assert all(len(name) <= MAX_KEY and name.isprintable() for name in (*names, *keys))
    assert all(len(text) <= MAX_VALUE and text.isprintable() for text in texts)
    assert all(0 <= count <= 1 << 28 for counts in (pod.requests, pod.limits) for count in counts.values())


def _list(data: bytes) -> None:
    table = PodTable(max_pods=8, max_deleted=4)
    for found in msgspec.json.decode(data, type=PodList).items or ():
        _put(table, found)
    assert max(table.sizes) <= 8


def _event(data: bytes) -> None:
    event = msgspec.json.decode(data, type=Event)
    _put(PodTable(), msgspec.json.decode(event.object, type=PodObject))


_RESPONSE = response_class()


def _devices(data: bytes) -> None:
    for said in _RESPONSE.FromString(data).pods:
        devices = _of(said)
        assert len(devices) <= 256
        assert all(device.isprintable() and len(device) <= 128 for _, device in devices)


def _answer() -> bytes:
    response = _RESPONSE()
    pod = response.pods.add(name="web", namespace="shop")
    container = pod.containers.add(name="main")
    container.devices.add(resource_name="nvidia.com/gpu", device_ids=["GPU-1", "GPU-2::0", "GPU-2::3"])
    container.claims.add(name="c").resources.add(driver="gpu.nvidia.com", pool="p", device="gpu-7")
    encoded: bytes = response.SerializeToString()
    return encoded


def _lists() -> list[bytes]:
    page = {"metadata": {"resourceVersion": "5", "continue": "x"}, "items": [_POD, {"metadata": {"name": "b"}}]}
    return [json.dumps(page).encode(), b'{"items":null}']


def _events() -> list[bytes]:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    return [json.dumps(one).encode() for one in ({"type": "ADDED", "object": _POD}, bookmark)]


TARGETS = (
    Target("pod_list", _list, _lists, UNREADABLE),
    Target("pod_event", _event, _events, UNREADABLE),
    Target("pod_devices", _devices, lambda: [_answer()], (DecodeError,)),
)
