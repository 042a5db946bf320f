"""Which GPUs has the kubelet given to which pod? Its pod-resources service says it, on a socket of this node.

It names pods by namespace and name, which another pod may have had before: what is said holds for a pod only if it was
there before the question and after the answer.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ...text import escaped, one_line
from .messages import LIST, response_class
from .objects import is_gpu
from .table import PodTable

_log = logging.getLogger(__name__)

_EVERY_S = 10.0
_ABSENT_S = 60.0
_TIMEOUT_S = 5.0
_MAX_ANSWER = 16 << 20
_MAX_DEVICES = 256
"""Of one pod."""
_SHARED = re.compile(r"(.+)::[0-9]+")
"""NVIDIA's device plugin numbers those who share a GPU in turns."""
_DRA_DRIVER = re.compile(r"gpu\.(nvidia|amd|intel)\.com")

Devices = Mapping[tuple[str, str], int]
"""How many of a pod, by the resource's name and the device's id: more than one where a share of a device is given."""


class PodDevices:
    """Asks again and again. `step` is called by one thread, everything else by any."""

    def __init__(self, socket: str, table: PodTable) -> None:
        self._socket = socket
        self._table = table
        self._lock = threading.Lock()
        self._by_uid: dict[str, Devices] = {}
        self._channel: Any = None
        self._ask: Any = None
        self.trouble = ""

    def of_pod(self, uid: str) -> Devices:
        """Return what a pod has, as far as it is known."""
        with self._lock:
            return self._by_uid.get(uid, {})

    def step(self) -> float:
        """Ask once, and return when to ask again."""
        if not os.path.exists(self._socket):
            self._learn({})
            return _ABSENT_S
        from ...runtime.quiet_grpc import grpc

        before = self._table.named()
        try:
            response = self._asking()(b"", timeout=_TIMEOUT_S)
        except grpc.RpcError as e:
            return self._failed(e)
        after = self._table.named()
        found: dict[str, Devices] = {}
        for said in response.pods:
            pod = after.get((said.namespace, said.name))
            known = before.get((said.namespace, said.name))
            if pod is not None and known is not None and pod.uid == known.uid and (devices := _of(said)):
                found[pod.uid] = devices
        self._learn(found)
        if self.trouble:
            _log.info("pods: the kubelet says again which devices they have")
        self.trouble = ""
        return _EVERY_S

    def close(self) -> None:
        """Ask nothing more; idempotent."""
        channel, self._channel, self._ask = self._channel, None, None
        if channel is not None:
            channel.close()

    def _asking(self) -> Any:
        if self._ask is None:
            from ...runtime.quiet_grpc import grpc

            options = (
                ("grpc.max_receive_message_length", _MAX_ANSWER),
                ("grpc.enable_http_proxy", 0),
                # An observed program may have the same channel to somebody else.
                ("grpc.use_local_subchannel_pool", 1),
            )
            self._channel = grpc.insecure_channel(f"unix:{self._socket}", options)
            self._ask = self._channel.unary_unary(
                LIST, request_serializer=bytes, response_deserializer=response_class().FromString
            )
        return self._ask

    def _failed(self, error: Any) -> float:
        """What devices pods had, they have until their end: it stays known."""
        why = one_line(str(error.details() if hasattr(error, "details") else error))
        what = f"the kubelet does not say at {self._socket} which devices pods have: {why}; run as root, or set pod_resources to ''"
        if not self.trouble:
            _log.warning("pods: %s", what)
        self.trouble = what
        running = {pod.uid for pod in self._table.running()}
        with self._lock:
            self._by_uid = {uid: devices for uid, devices in self._by_uid.items() if uid in running}
        return _EVERY_S

    def _learn(self, found: dict[str, Devices]) -> None:
        with self._lock:
            self._by_uid = found


def _of(said: Any) -> Devices:
    """Return the devices of one pod's answer, counted."""
    counted: Counter[tuple[str, str]] = Counter()
    for key in _named(said):
        if key in counted or len(counted) < _MAX_DEVICES:
            counted[key] += 1
    return counted


def _named(said: Any) -> Iterator[tuple[str, str]]:
    for container in said.containers:
        for devices in container.devices:
            if is_gpu(devices.resource_name):
                for device in devices.device_ids:
                    shared = _SHARED.fullmatch(device)
                    yield devices.resource_name, escaped(shared[1] if shared else device, 128)
        for claim in container.claims:
            for resource in claim.resources:
                if _DRA_DRIVER.fullmatch(resource.driver):
                    yield resource.driver, escaped(resource.device, 128)
