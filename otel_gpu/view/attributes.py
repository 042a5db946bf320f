"""What do attributes of OTLP say, as far as they are kept? So many, so long, and printable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..signals.frame_names import clean
from ..signals.metrics import Attributes, AttributeValue
from .losses import Losses, Reason
from .settings import Bounds

_SHOWN_ITEMS = 16
_MAX_DEPTH = 4
_MAX_KNOWN = 50_000


class AttributeReader:
    """Reads attributes; equal texts are one object, as the same ones come with every export."""

    def __init__(self, bounds: Bounds, losses: Losses) -> None:
        self._bounds, self._losses = bounds, losses
        self._known: dict[str, str] = {}

    def text(self, value: str) -> str:
        """Return a text as it is kept."""
        known = self._known.get(value)
        if known is None:
            kept = clean(value, self._bounds.text)
            if len(value) > self._bounds.text:
                self._losses.add(Reason.CUT)
                return kept
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[value] = kept
        return known

    def read(self, pairs: Iterable[Any], pair: Callable[[Any], tuple[str, AttributeValue]] | None = None) -> Attributes:
        """Return the attributes of a message, sorted; `pair` reads one where it is not plain."""
        found: dict[str, AttributeValue] = {}
        beyond = 0
        for one in pairs:
            if len(found) >= self._bounds.attributes:
                beyond += 1
                continue
            key, value = (one.key, self._value(one.value)) if pair is None else pair(one)
            if value is not None:
                found[self.text(key)] = self.text(value) if isinstance(value, str) else value
        self._losses.add(Reason.ATTRIBUTES, beyond)
        return tuple(sorted(found.items()))

    def _value(self, value: Any) -> AttributeValue | None:
        which = value.WhichOneof("value")
        if which in {"string_value", "int_value", "double_value", "bool_value"}:
            plain: AttributeValue = getattr(value, which)
            # NaN equals nothing, itself included: each point would be a series of its own.
            return str(plain) if plain != plain else plain  # noqa: PLR0124
        return None if which is None else _shown(value, 0)


def _shown(value: Any, depth: int) -> str:
    """Return how lists and the like read, without their depths."""
    which = value.WhichOneof("value")
    if which is None:
        return ""
    if depth >= _MAX_DEPTH:
        return "…"
    if which == "array_value":
        return f"[{', '.join(_shown(v, depth + 1) for v in value.array_value.values[:_SHOWN_ITEMS])}]"
    if which == "kvlist_value":
        pairs = value.kvlist_value.values[:_SHOWN_ITEMS]
        return f"{{{', '.join(f'{p.key}: {_shown(p.value, depth + 1)}' for p in pairs)}}}"
    if which == "bytes_value":
        return bytes(value.bytes_value[:_SHOWN_ITEMS]).hex()
    return str(getattr(value, which))
