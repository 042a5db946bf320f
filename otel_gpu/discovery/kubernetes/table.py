"""Which pod is it? By the id that its control group has, or by name.

A pod that is deleted stays known for a while: its processes may live on, and what is still to be said of them has its
name. Ids are never given twice, so that none of them can be taken for another pod.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

from .pod import Pod

MAX_PODS = 4096
"""Of one node; kubelets allow 110 by default."""
MAX_DELETED = 1024


class PodTable:
    """The pods of this node. Safe to use from several threads."""

    def __init__(self, max_pods: int = MAX_PODS, max_deleted: int = MAX_DELETED) -> None:
        self._max_pods, self._max_deleted = max_pods, max_deleted
        self._lock = threading.Lock()
        self._live: dict[str, Pod] = {}
        self._deleted: OrderedDict[str, Pod] = OrderedDict()
        """Those that were last asked for at the end."""
        self._static: dict[str, dict[str, None]] = {}
        """Ids of the API by the id that a static pod's control group has. Anybody who may make pods can claim one."""
        self._refused = 0
        self._changes = 0

    @property
    def changes(self) -> int:
        """How often anything changed."""
        return self._changes

    @property
    def refused(self) -> int:
        """Pods for which there was no room, or that were none."""
        return self._refused

    @property
    def sizes(self) -> tuple[int, int]:
        """How many there are, and how many that were deleted are still known."""
        with self._lock:
            return len(self._live), len(self._deleted)

    def refuse(self) -> None:
        """Count one that is none."""
        with self._lock:
            self._refused += 1

    def put(self, pod: Pod) -> None:
        """Take in what is said of a pod now."""
        with self._lock:
            self._put(pod)

    def delete(self, pod: Pod) -> None:
        """Take in that a pod is gone."""
        with self._lock:
            self._put(pod)
            self._bury(pod.uid)

    def replace(self, pods: Iterable[Pod]) -> None:
        """Take in all pods that there are; those that are not among them are gone."""
        found = {pod.uid: pod for pod in pods}
        with self._lock:
            for uid in [uid for uid in self._live if uid not in found]:
                self._bury(uid)
            for pod in found.values():
                self._put(pod)
            self._changes += 1

    def find(self, cgroup_uid: str) -> Pod | None:
        """Return the pod with a control group of that name, also one that was deleted not long ago."""
        with self._lock:
            uid = cgroup_uid
            if claimed := self._static.get(cgroup_uid):
                # The API's picture of a static pod is made anew now and then; two at a time are one too many.
                live = [one for one in claimed if one in self._live]
                if len(live) > 1:
                    return None
                uid = live[0] if live else next(reversed(claimed))
            if uid in self._deleted:
                self._deleted.move_to_end(uid)
                return self._deleted[uid]
            return self._live.get(uid)

    def named(self) -> dict[tuple[str, str], Pod]:
        """Return the pods that run, by namespace and name."""
        return {(pod.namespace, pod.name): pod for pod in self.running()}

    def running(self) -> list[Pod]:
        """Return the pods that are there and have not ended."""
        with self._lock:
            return [pod for pod in self._live.values() if not pod.is_over]

    def _put(self, pod: Pod) -> None:
        if pod.uid not in self._live and len(self._live) >= self._max_pods:
            self._refused += 1
            return
        self._deleted.pop(pod.uid, None)
        self._live[pod.uid] = pod
        if pod.cgroup_uid != pod.uid:
            self._static.setdefault(pod.cgroup_uid, {})[pod.uid] = None
        self._changes += 1

    def _bury(self, uid: str) -> None:
        pod = self._live.pop(uid, None)
        if pod is None:
            return
        self._deleted[uid] = pod
        self._changes += 1
        while len(self._deleted) > self._max_deleted:
            forgotten, pod = self._deleted.popitem(last=False)
            if claimed := self._static.get(pod.cgroup_uid):
                claimed.pop(forgotten, None)
                if not claimed:
                    del self._static[pod.cgroup_uid]
