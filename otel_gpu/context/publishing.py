"""What does a program tell observers of itself? Its resource, by OpenTelemetry's OTEP 4719, and each thread's span, by OTEP 4947.

Observers read it in the program's memory: nothing is sent, and nobody is waited for.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry import trace
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.sdk.resources import Resource

from ..errors import OtelGpuError
from ..signals.protobuf_fields import field
from .library import Library
from .threads import follow

_log = logging.getLogger(__name__)

_SCHEMA_VERSION = "threadlocal.schema_version"
_SCHEMA = "tlsdesc_v1_dev"
"""OTEP 4947's name of what threads have."""
_KEYS = "threadlocal.attribute_key_map"
_RESOURCE, _ATTRIBUTES = b"\x0a", b"\x12"
"""Fields 1 and 2 of ProcessContext, opentelemetry/proto/processcontext/v1development of opentelemetry-proto 1.11."""
_MAX_BYTES = 64 << 10
"""Of a resource: larger ones are no use to whoever reads them."""


@dataclass(frozen=True, slots=True)
class Published:
    """What observers can read from now on."""

    threads: bool
    """Whether they see each thread's current span, and not the process's resource alone."""
    reason: str = ""
    """Why not."""


_lock = threading.Lock()
_payload = b""
_library: Library | None = None


def publish(resource: Resource | None = None) -> Published:
    """Tell observers who this program is, and from now on which span of the OpenTelemetry SDK is current in each thread.

    To be called once the program has set its TracerProvider; called again, it replaces the resource. `resource` is that of the
    provider, unless given. Children that are forked publish for themselves. OtelGpuError where there is no provider of the
    SDK's, or the system refuses the memory for it.
    """
    global _payload, _library  # noqa: PLW0603 - a process publishes once
    resource = resource or getattr(trace.get_tracer_provider(), "resource", None)
    if not isinstance(resource, Resource):
        raise OtelGpuError("no resource to publish: call trace.set_tracer_provider() with a provider of the SDK first")
    with _lock:
        is_first = _library is None
        library = _library = _library or Library()
        followed = follow(library)
        _payload = _encoded(resource, has_threads=not followed)
        library.publish_process(_payload)
    if is_first:
        os.register_at_fork(after_in_child=_publish_again)
    return Published(not followed, followed)


def _publish_again() -> None:
    """Tell of a forked child what its parent told of itself: the resource of the SDK's provider, which both have."""
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it
    _lock = threading.Lock()
    try:
        if _library is not None:
            _library.publish_process(_payload)
    except OtelGpuError as e:
        _log.warning("%s", e)


def _encoded(resource: Resource, *, has_threads: bool) -> bytes:
    message = ResourceMessage()
    for key, value in resource.attributes.items():
        _put(message.attributes.add(key=key).value, value)
    encoded = field(_RESOURCE, message.SerializeToString())
    if has_threads:
        version, keys = KeyValue(key=_SCHEMA_VERSION), KeyValue(key=_KEYS)
        version.value.string_value = _SCHEMA
        keys.value.array_value.SetInParent()
        encoded += field(_ATTRIBUTES, version.SerializeToString()) + field(_ATTRIBUTES, keys.SerializeToString())
    if len(encoded) > _MAX_BYTES:
        raise OtelGpuError(
            f"the resource to publish has {len(encoded)} bytes, and may have {_MAX_BYTES}: leave some out"
        )
    return encoded


def _put(target: AnyValue, value: Any) -> None:
    match value:
        case bool():
            target.bool_value = value
        case int():
            target.int_value = value
        case float():
            target.double_value = value
        case Sequence() if not isinstance(value, str):
            target.array_value.SetInParent()
            for item in value:
                _put(target.array_value.values.add(), item)
        case _:
            target.string_value = str(value)
