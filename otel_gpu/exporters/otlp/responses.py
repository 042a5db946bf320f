"""What did the receiver make of a request? Its answers are read with suspicion: bounded, and never raised upon."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from ..delivery.sender import Accepted

MAX_RESPONSE_BYTES = 65_536


def accepted(body: bytes, shown: Callable[[str], str]) -> Accepted:
    """Read an Export…ServiceResponse of any signal: they differ in a field's name, which is not on the wire.

    `shown` makes the receiver's words fit to be logged.
    """
    try:
        partial = ExportMetricsServiceResponse.FromString(body).partial_success
    except DecodeError:
        return Accepted(message="an answer that is not OTLP; is this an OTLP endpoint?")
    return Accepted(partial.rejected_data_points, shown(partial.error_message))
