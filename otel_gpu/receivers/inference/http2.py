"""What was a request of HTTP/2, and its response, by what their header blocks say?"""

from __future__ import annotations

import re

from ...signals.structs import Frozen
from .header_blocks import HeaderBlock
from .request import Ending, RpcCall

_RPC_METHOD = re.compile(r"/([A-Za-z0-9_.\-]{1,200}/[A-Za-z0-9_.\-]{1,100})\Z")
_STATUS = re.compile(r"[1-9][0-9]{2}\Z")
_RPC_STATUS = re.compile(r"[0-9]{1,9}\Z")


class Exchange(Frozen):
    """One request and its response, as far as they were seen."""

    stream: int
    start_ns: int
    end_ns: int
    ending: Ending
    method: str = ""
    """Empty where it is not known, as all that follows."""
    target: str = ""
    """The `:path`, each byte a character."""
    scheme: str = ""
    authority: str = ""
    traceparents: tuple[str, ...] = ()
    tracestates: tuple[str, ...] = ()
    status: int | None = None
    rpc: RpcCall | None = None
    request_body_bytes: int = 0
    """With what pads it."""
    response_body_bytes: int = 0
    chunks: int = 0
    """Frames of data in the response."""
    is_event_stream: bool = False
    first_byte_ns: int | None = None
    first_chunk_ns: int | None = None
    last_chunk_ns: int | None = None
    is_lost: bool = False
    """Whether fields were not known: what is missing may have been there."""


def status_of(response: HeaderBlock) -> int | None:
    """Return the status that a response has."""
    status = response.value(":status")
    return int(status) if _STATUS.match(status) else None


def is_event_stream(response: HeaderBlock) -> bool:
    """Tell whether a response is made of server-sent events."""
    return response.value("content-type").partition(";")[0].strip(" ").lower() == "text/event-stream"


def rpc_of(request: HeaderBlock, response: HeaderBlock, trailers: HeaderBlock) -> RpcCall | None:
    """Return the call that a request is, if it is one of gRPC."""
    types = (request.value("content-type"), response.value("content-type"))
    if not any(t == "application/grpc" or t.startswith(("application/grpc+", "application/grpc;")) for t in types):
        return None
    match = _RPC_METHOD.match(request.value(":path"))
    code = trailers.value("grpc-status") or response.value("grpc-status")
    return RpcCall(match[1] if match else "", int(code) if _RPC_STATUS.match(code) else None)
