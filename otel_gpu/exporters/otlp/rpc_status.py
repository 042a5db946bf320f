"""What does a receiver's google.rpc.Status say? It comes in gRPC's trailing metadata and in HTTP error bodies."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from ...signals.structs import Frozen

MAX_STATUS_BYTES = 16_384
_RETRY_INFO = "google.rpc.RetryInfo"


class RpcStatus(Frozen):
    """The part of a Status that matters here."""

    message: str = ""
    retry_delay_s: float | None = None
    """The delay of a RetryInfo, which says that the receiver can recover; None without one."""


def read_status(serialized: bytes) -> RpcStatus | None:
    """Read a serialized Status; None when it is too large or none at all."""
    if not 0 < len(serialized) <= MAX_STATUS_BYTES:
        return None
    # Only who refuses a request says one.
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status

    try:
        status = Status.FromString(serialized)
        for detail in status.details:
            if detail.type_url.rpartition("/")[2] == _RETRY_INFO:
                delay = RetryInfo.FromString(detail.value).retry_delay
                return RpcStatus(status.message, max(0.0, delay.seconds + delay.nanos / 1e9))
    except DecodeError:
        return None
    return RpcStatus(status.message)
