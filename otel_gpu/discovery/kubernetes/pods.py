"""What does Kubernetes say of the pods of this node? Asked by threads of their own, for all parts of an agent."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...runtime.supervision import Health, Worker
from ...signals.metrics import SelfReading
from . import metrics
from .access import access
from .connection import Connections
from .devices import Devices, PodDevices
from .pod import Pod
from .settings import KubernetesSettings
from .table import PodTable
from .watch import WATCH_S, PodWatch, Waits

_FIRST_S = 3.0
"""How long the first list is waited for."""
_STUCK_S = WATCH_S + 120.0
_END_S = 1.0


class Pods:
    """The pods of this node. Safe to use from several threads; `start` before, `close` after."""

    def __init__(
        self,
        settings: KubernetesSettings,
        environ: Mapping[str, str] | None = None,
        waits: Waits = Waits(),
    ) -> None:
        """Take how it is asked; ConfigError where that is not said. Nothing is touched before `start`."""
        given = {} if environ is None else {"environ": environ}
        node = settings.node_name(**given)
        self._connections = Connections(access(settings, **given))
        self.table = PodTable()
        self._watch = PodWatch(
            self._connections,
            self.table,
            node,
            namespace=settings.namespace,
            is_kubelet=settings.source == "kubelet",
            waits=waits,
        )
        self._watching = Worker("pods", self._watch.step, interrupt=self._woken, stuck_after_s=_STUCK_S)
        self._devices = PodDevices(settings.pod_resources, self.table) if settings.pod_resources else None
        self._asking = None if self._devices is None else Worker("pod devices", self._devices.step)
        self._is_closing = False
        self._lock = threading.Lock()

    def start(self, wait_s: float = _FIRST_S) -> None:
        """Begin to ask, and wait a moment for the first answer; OtelGpuError where there is no room for a thread."""
        self._watching.start()
        self._watch.listed.wait(wait_s)
        if self._asking is not None:
            self._asking.start()

    def find(self, cgroup_uid: str) -> Pod | None:
        """Return the pod that a control group names."""
        return self.table.find(cgroup_uid)

    def devices(self, uid: str) -> Devices:
        """Return which GPUs the kubelet has given to a pod."""
        return {} if self._devices is None else self._devices.of_pod(uid)

    def health(self) -> Iterator[Health]:
        """Say whether somebody answers."""
        for worker, part in ((self._watching, self._watch), (self._asking, self._devices)):
            if worker is not None and part is not None:
                health = worker.health()
                yield replace(health, trouble=health.trouble or part.trouble)

    def readings(self) -> Iterator[SelfReading]:
        """Yield how many are known, and how the asking goes."""
        for state, count in zip(("running", "deleted"), self.table.sizes):
            yield SelfReading(metrics.PODS, count, {metrics.STATE: state})
        yield SelfReading(metrics.PODS_REFUSED, self.table.refused)
        for outcome, count in self._watch.outcomes().items():
            yield SelfReading(metrics.REQUESTS, count, {metrics.OUTCOME: outcome.value})
        age = self._watch.age_s
        if age is not None:
            yield SelfReading(metrics.AGE, age)

    def close(self) -> None:
        """Ask nothing more; idempotent."""
        with self._lock:
            self._is_closing = True
        self._watching.stop(_END_S)
        if self._asking is not None and self._devices is not None and self._asking.stop(_END_S):
            self._devices.close()

    def _woken(self) -> None:
        # A watch has nothing to do but wait; it is interrupted to end alone.
        if self._is_closing:
            self._connections.interrupt()
