"""How is an export request written as OTLP/JSON? As protobuf's JSON mapping, but for what OTLP makes different.

That is: ids are hexadecimal instead of base64, and enums are integers (OTLP specification, "JSON Protobuf
Encoding"). The Collector's file exporter writes this and its `otlp_json_file` receiver reads it.
"""

from __future__ import annotations

import base64
import functools
import json
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from ...signals import Signal
from ..delivery.payload import Payload

_IDS = frozenset({"traceId", "spanId", "parentSpanId", "profileId"})


def to_json(message: Message) -> str:
    """Return an Export…ServiceRequest as one line of OTLP/JSON, without the newline."""
    tree = json_format.MessageToDict(message, use_integers_for_enums=True)
    return json.dumps(_with_hex_ids(tree), separators=(",", ":"), ensure_ascii=False)


def json_payload(signal: Signal, payload: Payload[bytes]) -> Payload[bytes]:
    """Return a serialized request as one line of OTLP/JSON, with its newline."""
    line = f"{to_json(request_type(signal).FromString(payload.body))}\n".encode()
    return Payload(line, payload.points, len(line))


@functools.cache
def request_type(signal: Signal) -> type[Message]:
    """Return the message that a signal's export requests are; imported for the signals that are used."""
    if signal == "metrics":
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        return ExportMetricsServiceRequest
    if signal == "traces":
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        return ExportTraceServiceRequest
    from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest

    return ExportProfilesServiceRequest


def _with_hex_ids(tree: dict[str, Any]) -> dict[str, Any]:
    """Rewrite the ids of a tree in place."""
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(child for child in node if isinstance(child, dict | list))
            continue
        for key, value in node.items():
            if isinstance(value, dict | list):
                waiting.append(value)
            elif key in _IDS:
                node[key] = base64.b64decode(value).hex()
    return tree
