"""What can OTLP carry? Text that is UTF-8 and integers of 64 bits; the rest is made to fit."""

from __future__ import annotations

from ...signals.metrics import AttributeValue

INT64 = range(-(2**63), 2**63)


def utf8(text: str) -> str:
    """Return the text with what UTF-8 cannot carry replaced: names from targets may hold lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def fitting(value: AttributeValue) -> AttributeValue:
    """Return the value of an attribute as OTLP can carry it: an integer beyond 64 bits is text."""
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, int) and value not in INT64:
        return str(value)
    return value
