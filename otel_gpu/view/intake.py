"""How does a request become what is kept? Parsed whole or refused, one at a time, and what had no room is told of."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from typing import Any, NamedTuple

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as profiles_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb

from ..exporters.recordings.reading import from_otlp
from ..signals import Signal
from ..signals.profiles import Profile
from .bodies import RefusedError, too_large
from .losses import Reason
from .metrics_reading import take_metrics
from .settings import Bounds
from .store import Store

_WAIT_S = 5.0
"""So long a request waits for others to be read."""
_IDS = ("traceId", "spanId", "parentSpanId", "profileId")


class Form(NamedTuple):
    """How the requests of a signal look."""

    request: type[Message]
    response: type[Message]
    rejected: str
    """The field of a partial success that says how many were not kept."""
    what: str


FORMS: dict[Signal, Form] = {
    "metrics": Form(
        metrics_pb.ExportMetricsServiceRequest,
        metrics_pb.ExportMetricsServiceResponse,
        "rejected_data_points",
        "points",
    ),
    "traces": Form(trace_pb.ExportTraceServiceRequest, trace_pb.ExportTraceServiceResponse, "rejected_spans", "spans"),
    "profiles": Form(
        profiles_pb.ExportProfilesServiceRequest,
        profiles_pb.ExportProfilesServiceResponse,
        "rejected_profiles",
        "samples",
    ),
}


class Intake:
    """Takes requests of any transport; used by any thread."""

    def __init__(self, store: Store, bounds: Bounds) -> None:
        self._store = store
        self.bounds = bounds
        # What is being read takes a multiple of its size in memory: one at a time.
        self._one_at_a_time = threading.Lock()

    def take(self, signal: Signal, body: bytes, *, is_json: bool = False) -> Message:
        """Keep what a request says and return the response; RefusedError for what is no such request."""
        limit = self.bounds.json_bytes if is_json else self.bounds.body_bytes
        if len(body) > limit:
            raise too_large(limit)
        if not self._one_at_a_time.acquire(timeout=_WAIT_S):
            raise RefusedError(503, "others are being read; try again", Reason.BUSY)
        try:
            request = _parsed(FORMS[signal].request, body, is_json=is_json)
            rejected = self._keep(signal, request)
        finally:
            self._one_at_a_time.release()
        form = FORMS[signal]
        response = form.response()
        if rejected:
            partial: Any = response.partial_success  # type: ignore[attr-defined]
            setattr(partial, form.rejected, rejected)
            partial.error_message = f"{rejected} {form.what} were not kept; the page says why, under health"
        return response

    def _keep(self, signal: Signal, request: Message) -> int:
        store = self._store
        if signal == "profiles":
            profiles = _profiles(request, self.bounds)
            with store.lock:
                return store.profiles.take(profiles, store.resources, store.sweep())
        with store.lock:
            now_ns = store.sweep()
            if signal == "traces":
                return store.spans.take(request, store.resources, store.reader, now_ns)
        rejected = 0
        points = take_metrics(request, store.series, store.resources, store.reader, store.losses, now_ns)
        while True:
            # Between metrics others may look: a large request takes longer than a page should wait.
            with store.lock:
                more = next(points, None)
                if more is None:
                    store.series.settle()
                    return rejected
            rejected += more


def _parsed(kind: type[Message], body: bytes, *, is_json: bool) -> Message:
    request = kind()
    try:
        if is_json:
            document = json.loads(body, object_hook=_with_base64_ids)
            json_format.ParseDict(document, request, ignore_unknown_fields=True)
        else:
            request.ParseFromString(body)
    # json_format lets errors of Python's own through, as for a list where an object belongs.
    except (
        DecodeError,
        json_format.ParseError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
        KeyError,
    ) as error:
        why = f"the body is no {kind.DESCRIPTOR.name}, as {'JSON' if is_json else 'protobuf'}"
        raise RefusedError(400, why, Reason.MALFORMED) from error
    return request


def _with_base64_ids(node: dict[str, Any]) -> dict[str, Any]:
    """Return an object with its ids as protobuf's JSON has them; OTLP's has them in hex."""
    for key in _IDS:
        if isinstance(value := node.get(key), str):
            node[key] = b64encode(bytes.fromhex(value)).decode()
    return node


def _profiles(request: Any, bounds: Bounds) -> list[Profile]:
    frames = sum(len(stack.location_indices) for stack in request.dictionary.stack_table)
    if frames > bounds.stack_frames:
        raise too_large(bounds.body_bytes)
    try:
        return from_otlp(request)
    except (ValueError, TypeError, OverflowError) as error:
        raise RefusedError(400, "a profile points to what is not there", Reason.MALFORMED) from error
