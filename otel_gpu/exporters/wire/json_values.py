"""How does a value look in OTLP/JSON?"""

from __future__ import annotations

import json
import math

from ...signals.metrics import AttributeValue
from .utf8 import INT64, utf8

json_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""Writes a value as short as it can be."""


def attribute(key: str, value: AttributeValue) -> str:
    """Return an attribute as the object that OTLP has for it, which says its type."""
    if isinstance(value, str):
        text = f'"stringValue":{json_text(utf8(value))}'
    elif isinstance(value, bool):
        text = f'"boolValue":{"true" if value else "false"}'
    elif isinstance(value, float):
        text = f'"doubleValue":{double(value)}'
    elif value in INT64:
        text = f'"intValue":"{value}"'
    else:
        text = f'"stringValue":{json_text(str(value))}'
    return f'{{"key":{json_text(utf8(key))},"value":{{{text}}}}}'


def double(value: float) -> str:
    """Return the text of a number, quoted where JSON has none."""
    number = float(value)
    if math.isfinite(number):
        return repr(number)
    return '"NaN"' if math.isnan(number) else '"Infinity"' if number > 0 else '"-Infinity"'
