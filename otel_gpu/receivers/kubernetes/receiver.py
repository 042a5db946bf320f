"""Which GPUs do pods ask for, which has the kubelet given to them, and on which are their processes?

Each pod that has to do with GPUs has a resource of its own, with the names that its processes have by the processor.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...discovery.kubernetes import metrics
from ...discovery.kubernetes.pod import Pod
from ...discovery.kubernetes.pods import Pods
from ...discovery.process_devices import DeviceTable
from ...signals.metrics import Measurement, Resource, attributes

_MAX_PODS = 1024
"""Of a node that have to do with GPUs; there are fewer GPUs, and parts of them."""


class PodGpus:
    """Measures pods."""

    def __init__(self, pods: Pods, host: Resource, devices: DeviceTable) -> None:
        """`devices` knows which processes are on which GPU."""
        self._pods = pods
        self._host = host
        self._devices = devices

    def collect(self) -> list[Measurement]:
        """Return what is so now."""
        used = self._used()
        found: list[Measurement] = []
        measured = 0
        for pod in self._pods.table.running():
            of_pod = list(self._of(pod, None if used is None else used.get(pod.uid, set())))
            if of_pod and measured < _MAX_PODS:
                measured += 1
                found += of_pod
        return found

    def close(self) -> None:
        """Nothing is held."""

    def _of(self, pod: Pod, used: set[str] | None) -> Iterator[Measurement]:
        allocated = self._pods.devices(pod.uid)
        if not (pod.requests or pod.limits or allocated or used):
            return
        resource = self._resource(pod)
        for metric, amounts in ((metrics.REQUEST, pod.requests), (metrics.LIMIT, pod.limits)):
            for name, count in amounts.items():
                yield Measurement(resource, metric, ((metrics.RESOURCE_NAME, name),), count)
        for (name, device), count in allocated.items():
            attrs = attributes({metrics.RESOURCE_NAME: name, "hw.id": device})
            yield Measurement(resource, metrics.ALLOCATED, attrs, count)
        if used is not None:
            yield Measurement(resource, metrics.USED, (), len(used))

    def _resource(self, pod: Pod) -> Resource:
        of_pod = {
            "k8s.namespace.name": pod.namespace,
            "k8s.pod.name": pod.name,
            "k8s.pod.uid": pod.uid,
            "k8s.node.name": pod.node or None,
            # Prometheus tells targets apart by it; the host's own would make all pods one.
            "service.instance.id": pod.uid,
            **dict(pod.owners),
        }
        known = {**dict(self._host.attributes), **of_pod}
        return Resource(attributes({key: value for key, value in known.items() if value is not None}))

    def _used(self) -> dict[str, set[str]] | None:
        """Return the GPUs that processes of pods are on, by the pod's id; None where NVML does not say it."""
        in_use = self._devices.in_use()
        if in_use is None:
            return None
        found: dict[str, set[str]] = {}
        for pid, uuids in in_use.items():
            resource = self._devices.resource(pid)
            said = {} if resource is None else dict(resource.attributes)
            uid = said.get("k8s.pod.uid")
            pod = self._pods.find(uid) if isinstance(uid, str) else None
            # By what the process says of itself alone, no pod has it.
            if pod is not None and pod.may_hold(said.get("container.id")):
                found.setdefault(pod.uid, set()).update(uuids)
        return found
