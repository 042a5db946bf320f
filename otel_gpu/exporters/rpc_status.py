"""What does a receiver's google.rpc.Status say? It comes in gRPC's trailing metadata and in HTTP error bodies."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, duration_pb2, message_factory
from google.protobuf.message import DecodeError

MAX_STATUS_BYTES = 16_384
_RETRY_INFO = "google.rpc.RetryInfo"
_Field = descriptor_pb2.FieldDescriptorProto


@dataclass(frozen=True, slots=True)
class RpcStatus:
    """The part of a Status that matters here."""

    message: str = ""
    retry_delay_s: float | None = None
    """The delay of a RetryInfo, which says that the receiver can recover; None without one."""


def read_status(serialized: bytes) -> RpcStatus | None:
    """Read a serialized Status; None when it is too large or none at all."""
    if not 0 < len(serialized) <= MAX_STATUS_BYTES:
        return None
    status_type, retry_info_type = _messages()
    try:
        status = status_type.FromString(serialized)
        for detail in status.details:
            if detail.type_url.rpartition("/")[2] == _RETRY_INFO:
                delay = retry_info_type.FromString(detail.value).retry_delay
                return RpcStatus(status.message, max(0.0, delay.seconds + delay.nanos / 1e9))
    except DecodeError:
        return None
    return RpcStatus(status.message)


@functools.cache
def _messages() -> tuple[Any, Any]:
    """Declare Status and RetryInfo, which no package that we depend on holds."""
    pool = descriptor_pool.DescriptorPool()  # its own, so that googleapis-common-protos may be loaded as well
    for wrapper in (any_pb2, duration_pb2):
        pool.AddSerializedFile(wrapper.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(name="rpc_status.proto", package="google.rpc", syntax="proto3")
    file.dependency.extend([any_pb2.DESCRIPTOR.name, duration_pb2.DESCRIPTOR.name])
    one, many = _Field.LABEL_OPTIONAL, _Field.LABEL_REPEATED
    status = file.message_type.add(name="Status")
    status.field.add(name="message", number=2, type=_Field.TYPE_STRING, label=one)
    status.field.add(name="details", number=3, type=_Field.TYPE_MESSAGE, label=many, type_name=".google.protobuf.Any")
    file.message_type.add(name="RetryInfo").field.add(
        name="retry_delay", number=1, type=_Field.TYPE_MESSAGE, label=one, type_name=".google.protobuf.Duration"
    )
    pool.Add(file)
    get = message_factory.GetMessageClass
    return (
        get(pool.FindMessageTypeByName("google.rpc.Status")),
        get(pool.FindMessageTypeByName("google.rpc.RetryInfo")),
    )
