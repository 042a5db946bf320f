"""What do these heads say that were seen before? A client's heads are the same again, but for the trace; a server's but for the date.

Reading a head costs ten times as much as recognising it. The lines that change are taken out, where they stand as they
do as a rule, and what the rest says is remembered.
"""

from __future__ import annotations

import re
from typing import Generic, TypeVar

from ...signals.structs import Frozen
from .http1 import final_response, parse_request
from .http1_heads import Framing, RequestHead, ResponseHead
from .routes import path_of, template_of

MAX_HEADS = 1024
"""That are remembered; then all are forgotten, which costs less than to know the oldest."""
MAX_REMEMBERED = 2048
"""Bytes of a head that is remembered."""

_END = b"\r\n\r\n"
_TRACE = re.compile(rb"\r\n[Tt]race[Pp]arent: ?([!-~]{55})(?=\r\n(?:[!-~]|\r\n\Z))")
_DATE = re.compile(rb"\r\n[Dd]ate: [A-Z][ !-~]{5,40}(?=\r\n(?:[!-~]|\r\n\Z))")
_STREAMED = frozenset({Framing.CHUNKED, Framing.UNTIL_CLOSE})


class Asked(Frozen):
    """What a request's head says, but for its trace."""

    method: str = ""
    path: str = ""
    template: str = ""
    version: str = ""
    host: str = ""
    tracestates: tuple[str, ...] = ()
    traceparents: tuple[str, ...] = ()


class Answered(Frozen):
    """What a response's head says."""

    status: int | None = None
    is_event_stream: bool = False
    has_no_length: bool = False
    """Whether its body comes in chunks, or until the connection closes."""


_Said = TypeVar("_Said")


class _Memory(Generic[_Said]):
    """Remembers what heads say."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], _Said] = {}

    def get(self, method: str, head: bytes) -> _Said | None:
        return self._known.get((method, head))

    def keep(self, method: str, head: bytes, said: _Said) -> None:
        if len(head) <= MAX_REMEMBERED:
            if len(self._known) >= MAX_HEADS:
                self._known.clear()
            self._known[method, head] = said


class RequestHeads:
    """Reads heads of requests."""

    def __init__(self) -> None:
        self._memory: _Memory[Asked] = _Memory()

    def read(self, captured: bytes) -> tuple[Asked, tuple[str, ...]]:
        """Return what a head says, and its `traceparent`s."""
        head = _whole(captured)
        if head is None:
            asked = _asked(parse_request(captured))
            return asked, asked.traceparents
        trace = _TRACE.search(head)
        if trace is not None:
            head = head[: trace.start()] + head[trace.end() :]
        known = self._memory.get("", head)
        if known is None:
            known = _asked(parse_request(head))
            self._memory.keep("", head, known)
        if trace is None:
            return known, known.traceparents
        return known, (trace[1].decode(), *known.traceparents)


class ResponseHeads:
    """Reads heads of responses."""

    def __init__(self) -> None:
        self._memory: _Memory[Answered] = _Memory()

    def read(self, captured: bytes, method: str) -> Answered:
        """Return what the head of the final response says."""
        # Behind an interim response there is another one.
        head = _whole(captured) if captured[9:10] != b"1" else None
        if head is None:
            return _answered(final_response(captured, method)[0])
        date = _DATE.search(head)
        if date is not None:
            head = head[: date.start()] + head[date.end() :]
        answered = self._memory.get(method, head)
        if answered is None:
            answered = _answered(final_response(head, method)[0])
            self._memory.keep(method, head, answered)
        return answered


def _whole(captured: bytes) -> bytes | None:
    """Return a whole head in which each line ends as it should, or None."""
    end = captured.find(_END)
    if end <= 0 or captured[0] == 13:
        return None
    head = captured[: end + len(_END)]
    return head if head.count(b"\n") == head.count(b"\r\n") else None


def _asked(head: RequestHead | None) -> Asked:
    if head is None:
        return Asked()
    return Asked(
        head.method,
        path_of(head.target),
        template_of(head.target, is_cut=not head.version),
        head.version,
        head.host,
        head.headers.values("tracestate"),
        head.headers.values("traceparent"),
    )


def _answered(head: ResponseHead | None) -> Answered:
    if head is None or head.is_interim:
        return Answered()
    return Answered(head.status, head.is_event_stream, head.framing in _STREAMED)
