"""What may a process say of itself? A stranger's `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SERVICE_NAME` and context, within limits.

What a process says is repeated in every request that carries one of its series, so that 100 KB of it in a hundred
processes would cost hundreds of MB. What was observed is nothing that it may say otherwise.
"""

from __future__ import annotations

import enum
import math
import os
import re
import urllib.parse
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from ..signals.metrics import AttributeValue
from ..signals.observed import is_observed, plain
from ..signals.structs import Frozen
from ..text import escaped
from .process_context_work import Value

MAX_ATTRIBUTES = 64
MAX_KEY = 128
MAX_VALUE = 256
MAX_TOTAL = 4096
"""Characters of all keys and values together."""

_MAX_PAIRS = 1_000
"""Members of the list that are looked at; a member that is not looked at is one too many."""
_ENCODED = 12
"""Characters of `%F0%9F%98%80`, the longest that one character may be written as."""
_ESCAPED = 10
"""Characters of `\\U0001f600`, the longest escape."""
_OF_THE_SDK = "telemetry."
_UNNAMED = b"unknown_service"
"""What an SDK calls a service that has no name."""
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.\-/]*")


class Cut(str, enum.Enum):
    """Why something that a process said of itself is not shown as it said it."""

    RESERVED = "reserved"
    """Who and where it is was observed, or is not for it to say."""
    MALFORMED = "malformed"
    """No `key=value`, or a key with other characters than names have."""
    TOO_MANY = "too_many"
    """Beyond the number of attributes, or the size of all together."""
    SHORTENED = "shortened"
    """The value was longer than allowed, and is shown by its beginning."""


class OwnAttributes(Frozen):
    """The attributes that a process may say of itself, and how many were left out or shortened, by reason."""

    attributes: tuple[tuple[str, AttributeValue], ...]
    cuts: tuple[tuple[Cut, int], ...]


def own_attributes(
    variables: Mapping[str, str], observed: Mapping[str, object], published: Iterable[tuple[bytes, Value]] = ()
) -> OwnAttributes:
    """Return what a process says of itself beyond what was observed: what it publishes goes before its variables."""
    cuts: Counter[Cut] = Counter()
    kept: dict[str, AttributeValue] = {}
    total = 0
    taken = {plain(key): str(value) for key, value in observed.items()}
    for key, value in chain(_pairs(variables, cuts), _published(published, cuts)):
        if _is_reserved(key, taken):
            # To repeat what was observed is no harm, and common: an operator's webhook sets k8s.pod.uid too.
            if taken.get(plain(key)) != str(value):
                cuts[Cut.RESERVED] += 1
            continue
        size = len(key) + len(str(value)) - (len(key) + len(str(kept[key])) if key in kept else 0)
        if (key not in kept and len(kept) >= MAX_ATTRIBUTES) or total + size > MAX_TOTAL:
            cuts[Cut.TOO_MANY] += 1
            continue
        kept[key] = value
        total += size
    return OwnAttributes(tuple(kept.items()), tuple((cut, n) for cut, n in cuts.items()))


def _pairs(variables: Mapping[str, str], cuts: Counter[Cut]) -> Iterator[tuple[str, str]]:
    """Yield keys and values, decoded and bounded each; the service's own variable goes before the list."""
    service = variables.get("OTEL_SERVICE_NAME", "").strip()
    if service:
        yield "service.name", _bounded(service, cuts)
    members = variables.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",", _MAX_PAIRS)
    if len(members) > _MAX_PAIRS:
        cuts[Cut.TOO_MANY] += members.pop().count(",") + 1
    for member in members:
        key, equals, value = member.partition("=")
        key = key.strip()
        if not member.strip() or (service and key == "service.name"):
            continue
        if not equals or len(key) > MAX_KEY or not _KEY.fullmatch(key):
            cuts[Cut.MALFORMED] += 1
            continue
        yield key, _bounded(_decoded(value.strip()), cuts)


def _published(attributes: Iterable[tuple[bytes, Value]], cuts: Counter[Cut]) -> Iterator[tuple[str, AttributeValue]]:
    """Yield keys and values that a process publishes, but for what its SDK says of itself, and has for want of better."""
    for name, value in attributes:
        key = os.fsdecode(name[: MAX_KEY + 1])
        is_number = isinstance(value, int | float) and math.isfinite(value)
        if not (is_number or isinstance(value, bytes)) or len(key) > MAX_KEY or not _KEY.fullmatch(key):
            cuts[Cut.MALFORMED] += 1
        elif key.startswith(_OF_THE_SDK):
            continue
        elif isinstance(value, bytes):
            if key != "service.name" or not value.startswith(_UNNAMED):
                yield key, _bounded(os.fsdecode(value[: _ENCODED * (MAX_VALUE + 1)]), cuts)
        elif value is not None:
            yield key, value


def _decoded(value: str) -> str:
    return urllib.parse.unquote(value[: _ENCODED * (MAX_VALUE + 1)], errors="surrogateescape")


def _bounded(value: str, cuts: Counter[Cut]) -> str:
    shown = escaped(value, _ESCAPED * MAX_VALUE)
    if len(shown) > MAX_VALUE:
        cuts[Cut.SHORTENED] += 1
    return escaped(value, MAX_VALUE)


def _is_reserved(key: str, observed: Collection[str]) -> bool:
    return is_observed(key) or plain(key) in observed
