"""What do the semantic conventions call what a request was? Values that spans and metrics have in common.

After the conventions for HTTP and for gRPC servers (opentelemetry.io/docs/specs/semconv/http, …/rpc).
"""

from __future__ import annotations

from .gen_ai import PROVIDER, operation_of
from .request import Ending, Request

_METHODS = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"})
OTHER_METHOD = "_OTHER"
_STATUSES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""Of gRPC, by number."""
_UNIMPLEMENTED = 12
_SERVERS_FAULT = frozenset({2, 4, 12, 13, 14, 15})
"""Statuses that are errors of a server, not of its client."""


def method_of(request: Request) -> str | None:
    """Return the `http.request.method`, or None where it is not known."""
    if not request.method:
        return None
    return request.method if request.method in _METHODS else OTHER_METHOD


def rpc_method_of(request: Request) -> str | None:
    """Return the `rpc.method`: only what the server has is named."""
    if request.rpc is None:
        return None
    return OTHER_METHOD if request.rpc.status_code == _UNIMPLEMENTED else request.rpc.method or None


def rpc_status_of(request: Request) -> str | None:
    """Return the `rpc.response.status_code`, by name where it has one."""
    if request.rpc is None or (code := request.rpc.status_code) is None:
        return None
    return _STATUSES[code] if 0 <= code < len(_STATUSES) else OTHER_METHOD


def error_of(request: Request) -> str | None:
    """Return the `error.type` of a request that failed by the server's fault, or on its way."""
    if request.ending in {Ending.CONNECTION_CLOSED, Ending.EXCEPTION}:
        return str(request.ending.value)
    if request.rpc is not None and request.rpc.status_code is not None:
        return rpc_status_of(request) if request.rpc.status_code in _SERVERS_FAULT else None
    return str(request.status) if request.status is not None and request.status >= 500 else None


def model_attributes(request: Request) -> dict[str, str]:
    """Return the attributes of a request to a model; none where it is no such request."""
    operation = operation_of(request.method, request.path)
    if not operation:
        return {}
    return {"gen_ai.operation.name": operation, "gen_ai.provider.name": PROVIDER}
