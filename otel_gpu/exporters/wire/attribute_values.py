"""How does an attribute look in an OTLP message?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from ...signals.metrics import AttributeValue
from .utf8 import INT64, utf8


class _KeyValues(Protocol):
    def add(self) -> KeyValue: ...


def add_attributes(target: _KeyValues, attributes: Iterable[tuple[str, AttributeValue]]) -> None:
    """Append attributes to a repeated KeyValue field."""
    for key, value in attributes:
        pair = target.add()
        pair.key = utf8(key)
        if isinstance(value, str):
            pair.value.string_value = utf8(value)
        elif isinstance(value, bool):
            pair.value.bool_value = value
        elif isinstance(value, float):
            pair.value.double_value = value
        elif value in INT64:
            pair.value.int_value = value
        else:
            pair.value.string_value = str(value)
