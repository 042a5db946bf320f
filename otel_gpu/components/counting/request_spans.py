"""Which span does work belong to that a stack shows? Asked by who takes stacks, answered by who follows requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from ...signals.profiles import SpanLink


class WorkOwner(NamedTuple):
    """The request that a thread worked for when its stack was taken, as the kernel numbers it."""

    request: int
    holder: int
    """The task whose end decides whether it was for that request; 0: it was."""


Answer = Callable[[Collection[WorkOwner]], Mapping[WorkOwner, SpanLink | None]]


class RequestSpans:
    """What the receivers of one agent know together of the spans of requests."""

    def __init__(self) -> None:
        self._answer: Answer | None = None

    def answer_with(self, answer: Answer) -> None:
        """Say who knows: what is not in its answer is not decided yet, and None is no span."""
        self._answer = answer

    def find(self, owners: Collection[WorkOwner]) -> Mapping[WorkOwner, SpanLink | None]:
        """Return the spans of owners, as far as they are decided."""
        if self._answer is None:
            return dict.fromkeys(owners)
        return self._answer(owners) if owners else {}
