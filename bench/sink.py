"""Who receives what the agent sends? A bare OTLP/gRPC server that keeps the requests, to be added up afterwards."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

_SERVICE = "opentelemetry.proto.collector.metrics.v1.MetricsService"


class Sink:
    """Listens on a free port of the loopback until it is closed."""

    def __init__(self) -> None:
        self._requests: list[bytes] = []
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(2))
        export: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self._export)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"Export": export}),))
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.stop(grace=None)

    @property
    def requests(self) -> int:
        """How many requests have come."""
        with self._lock:
            return len(self._requests)

    def totals(self, metric: str) -> dict[int, int]:
        """Return a counter's last values, added up by process. A series that starts anew is another one."""
        totals: dict[int, int] = defaultdict(int)
        for (pid, _), value in self.totals_by(metric, "").items():
            totals[pid] += value
        return totals

    def totals_by(self, metric: str, attribute: str) -> dict[tuple[int, str], int]:
        """Return the same by process and an attribute's value, which is empty where a point has none."""
        with self._lock:
            requests = list(self._requests)
        last: dict[tuple[int, bytes, int, bytes], tuple[str, int]] = {}
        for body in requests:
            for owner in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                pid = next((a.value.int_value for a in owner.resource.attributes if a.key == "process.pid"), 0)
                # One program after the other in a process.
                who = owner.resource.SerializeToString()
                for one in (m for s in owner.scope_metrics for m in s.metrics if m.name == metric):
                    for point in (p for p in one.sum.data_points if not p.flags):  # a flag: it has ended
                        series = b"".join(a.SerializeToString() for a in point.attributes)
                        value = next((a.value.string_value for a in point.attributes if a.key == attribute), "")
                        last[pid, who, point.start_time_unix_nano, series] = value, point.as_int
        totals: dict[tuple[int, str], int] = defaultdict(int)
        for (pid, *_), (value, count) in last.items():
            totals[pid, value] += count
        return totals

    def _export(self, body: bytes, _context: grpc.ServicerContext) -> bytes:
        with self._lock:
            self._requests.append(body)
        return b""
