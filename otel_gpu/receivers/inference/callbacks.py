"""What is known of a callback that an executor ran? What it was for, on which topic or service, and which message it got.

A message is known by its publisher and its number there, as the middleware tells them to who takes it. Who publishes is not
told the number, so that nothing leads from there to here but what these say.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

import numpy as np

from ...bpf.abi.requests import CALLBACK_TOLD
from ...bpf.abi.requests import CallbackKind as KernelCallback
from ...signals.metrics import AttributeValue
from ...signals.spans import SpanKind
from ...signals.telemetry import OTHER
from .request import Callback, CallbackKind, Request

SYSTEM = "ros2"
"""The value of `messaging.system` and of `rpc.system.name`."""
_NAME = re.compile(rb"[A-Za-z0-9_/~]{1,255}\Z")
"""What names of topics and services are made of (design.ros2.org, "Topic and Service name mapping")."""
_REQUEST_ID = struct.Struct("<16x16sq")
"""struct rmw_service_info_t: two times, then struct rmw_request_id_t."""
_NUMBERED = struct.Struct("<16xQ8xQ16s")
"""struct rmw_message_info_t from Humble on: two times, the publisher's number, the taker's, struct rmw_gid_t."""
_NO_NUMBER = (1 << 64) - 1
"""RMW_MESSAGE_INFO_SEQUENCE_NUMBER_UNSUPPORTED."""
_KINDS = {int(kind): CallbackKind[kind.name] for kind in KernelCallback if kind is not KernelCallback.ANY}


def callback_of(request: np.void, name: bytes, told: bytes) -> Callback:
    """Return what the kernel saw of a callback; `name` and `told` are in place of a request's heads."""
    kind = _KINDS[int(request["status"])]
    known = name.decode("ascii") if _NAME.match(name) else ""
    return Callback(kind, known, _message_id(kind, told) if len(told) == CALLBACK_TOLD.itemsize else "")


def _message_id(kind: CallbackKind, told: bytes) -> str:
    """Return the id of a message: who sent it, and its number there; empty where the middleware does not say."""
    record = np.frombuffer(told, CALLBACK_TOLD)[0]
    message, implementation = record["message"].tobytes(), int(record["implementation"])
    if kind is not CallbackKind.SUBSCRIPTION:
        sender, number = _REQUEST_ID.unpack_from(message)
        return f"{sender.hex()}:{number}" if number >= 0 else ""
    # The middleware's name stands before the publisher's id: before Humble, when messages had no number, in another place.
    number, maker, sender = _NUMBERED.unpack_from(message)
    if maker != implementation or not implementation or number == _NO_NUMBER:
        return ""
    return f"{sender.hex()}:{number}"


def span_kind_of(callback: Callback) -> SpanKind:
    """Return the kind of its span."""
    match callback.kind:
        case CallbackKind.SUBSCRIPTION:
            return SpanKind.CONSUMER
        case CallbackKind.SERVICE:
            return SpanKind.SERVER
    return SpanKind.INTERNAL


def span_name_of(request: Request, callback: Callback) -> str:
    """Return the name of its span: of topics and services those that have room."""
    where = "" if request.route == OTHER else request.route
    match callback.kind:
        case CallbackKind.SUBSCRIPTION:
            return f"process {where}".rstrip()
        case CallbackKind.SERVICE:
            return where or SYSTEM
    return f"callback {callback.kind.value}"


def attributes_of(callback: Callback, name: str) -> Mapping[str, AttributeValue | None]:
    """Return what spans and metrics say of a callback. `name` is that of its topic or service."""
    found: dict[str, AttributeValue | None] = {"otel_gpu.callback.kind": callback.kind.value}
    match callback.kind:
        case CallbackKind.SUBSCRIPTION:
            found["messaging.destination.name"] = name or None
        case CallbackKind.SERVICE | CallbackKind.CLIENT:
            found["rpc.method"] = name or None
    return found


def span_attributes_of(callback: Callback) -> Mapping[str, AttributeValue | None]:
    """Return what a span says beyond that."""
    match callback.kind:
        case CallbackKind.SUBSCRIPTION:
            return {
                "messaging.message.id": callback.message_id or None,
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.system": SYSTEM,
            }
        case CallbackKind.SERVICE | CallbackKind.CLIENT:
            return {"messaging.message.id": callback.message_id or None, "rpc.system.name": SYSTEM}
    return {}
