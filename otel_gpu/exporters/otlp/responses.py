"""What did the receiver make of a request? Its answers are read with suspicion: bounded, and never raised upon."""

from __future__ import annotations

import json
from collections.abc import Callable

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from ...signals import Signal
from ..delivery.sender import Accepted

MAX_RESPONSE_BYTES = 65_536
_REJECTED = ("rejectedDataPoints", "rejectedSpans", "rejectedProfiles")
_MAX_DIGITS = 20


def not_taken(signal: Signal) -> str:
    """Say what a Collector lacks that has nothing for a signal where it was sent."""
    if signal == "profiles":
        return (
            "a Collector takes profiles with --feature-gates=service.profilesSupport, and a pipeline `profiles` that has its "
            "receiver `otlp`"
        )
    return f"a Collector takes {signal} where it has a pipeline `{signal}` with its receiver `otlp`"


def accepted(body: bytes, shown: Callable[[str], str]) -> Accepted:
    """Read an Export…ServiceResponse of any signal: they differ in a field's name, which is not on the wire.

    `shown` makes the receiver's words fit to be logged.
    """
    try:
        partial = ExportMetricsServiceResponse.FromString(body).partial_success
    except DecodeError:
        return Accepted(message="an answer that is not OTLP; is this an OTLP endpoint?")
    return Accepted(partial.rejected_data_points, shown(partial.error_message))


def accepted_json(body: bytes, shown: Callable[[str], str]) -> Accepted:
    """Read the same answer as OTLP/JSON, where the field's name tells the signal, and 64-bit integers are text."""
    try:
        answer = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        answer = None
    partial = answer.get("partialSuccess") or {} if isinstance(answer, dict) else None
    if not isinstance(partial, dict):
        return Accepted(message="an answer that is not OTLP; is this an OTLP endpoint?")
    message = partial.get("errorMessage")
    rejected = next((partial[key] for key in _REJECTED if key in partial), 0)
    is_number = str(rejected).isascii() and str(rejected).isdigit()
    return Accepted(
        int(str(rejected)[:_MAX_DIGITS]) if is_number else 0, shown(message) if isinstance(message, str) else ""
    )
