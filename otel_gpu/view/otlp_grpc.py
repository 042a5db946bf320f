"""How is OTLP taken over gRPC? Three methods, whose bodies are read here: what is malformed has a status that says so."""

from __future__ import annotations

import errno
import hmac
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..errors import OtelGpuError
from ..runtime.quiet_grpc import grpc
from ..signals import Signal
from .bodies import RefusedError
from .intake import Intake
from .losses import Losses, Reason

_METHODS: dict[str, Signal] = {
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": "metrics",
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": "traces",
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export": "profiles",
}
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
_THREADS, _WAITING = 4, 16
_SHORT_OF_A_SECOND_S = 0.5


class GrpcReceiver(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Listens from `start` to `stop`."""

    def __init__(self, intake: Intake, losses: Losses, token: str) -> None:
        self._intake, self._losses = intake, losses
        self._asked = f"Bearer {token}".encode() if token else b""
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, "otel-gpu-view-grpc"),
            handlers=(self,),
            maximum_concurrent_rpcs=_WAITING,
            options=(
                ("grpc.max_receive_message_length", intake.bounds.body_bytes),
                ("grpc.max_metadata_size", 16 << 10),
                # A port that somebody has is not to be shared with them.
                ("grpc.so_reuseport", 0),
            ),
        )

    def start(self, host: str, port: int) -> int:
        """Listen, and return the port; OtelGpuError where that cannot be."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound = self._server.add_insecure_port(address) if _is_free(host, port) else 0
        except RuntimeError:
            bound = 0
        if not bound:
            raise OtelGpuError(
                f"cannot listen at {address} for OTLP over gRPC: somebody else does, or it is no address of this host; end that "
                "program (a Collector?), or choose another port by --grpc-port"
            )
        self._server.start()
        return int(bound)

    def stop(self) -> None:
        """Listen no longer."""
        self._server.stop(_SHORT_OF_A_SECOND_S).wait(2 * _SHORT_OF_A_SECOND_S)

    def service(self, handler_call_details: Any) -> Any:
        """Return who answers a method; None for what is no method of OTLP's."""
        signal = _METHODS.get(handler_call_details.method)
        if signal is None:
            return None
        return grpc.unary_unary_rpc_method_handler(self._answer(signal))

    def _answer(self, signal: Signal) -> Callable[[bytes, Any], bytes]:
        def answer(body: bytes, context: Any) -> bytes:
            said = dict(context.invocation_metadata()).get("authorization", "")
            if self._asked and not hmac.compare_digest(_octets(said), self._asked):
                self._losses.add(Reason.NOT_ALLOWED)
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "give the view's token: authorization: Bearer TOKEN")
            try:
                return self._intake.take(signal, body).SerializeToString()
            except RefusedError as error:
                self._losses.add(error.reason)
                context.abort(_CODES.get(error.status, grpc.StatusCode.INTERNAL), str(error))
                raise AssertionError from error  # abort does not return

        return answer


def _is_free(host: str, port: int) -> bool:
    """Say whether nobody listens at any address of a name; gRPC is content with one of them, and others would get the rest."""
    if not port:
        return True
    try:
        addresses = {(a[0], a[4][0]) for a in socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)}
    except OSError:
        return True  # gRPC says so
    for family, address in addresses:
        try:
            socket.create_server((str(address), port), family=family).close()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
    return True


def _octets(said: str | bytes) -> bytes:
    return said if isinstance(said, bytes) else said.encode("utf-8", "surrogateescape")
