"""What is a span? One piece of work with a beginning and an end: what flows from receivers to the exporters of traces."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .metrics import Attributes, Resource
from .structs import Frozen

TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
_NO_TRACE, _NO_SPAN = bytes(TRACE_ID_BYTES), bytes(SPAN_ID_BYTES)
SAMPLED = 1
"""The bit of the trace flags that says that the trace is recorded."""


class SpanKind(enum.Enum):
    """Whose work it is; the value is OTLP's."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5

    __hash__ = object.__hash__  # there is one object of each: a third of what hashing its name takes


class SpanStatus(enum.Enum):
    """How it ended; the value is OTLP's."""

    UNSET = 0
    OK = 1
    ERROR = 2


class SpanContext(Frozen, gc=False):
    """What names a span in other places: 16 and 8 bytes, never all zero."""

    trace_id: bytes
    span_id: bytes
    trace_state: str = ""
    """As W3C's `tracestate` header has it."""
    flags: int = SAMPLED

    def __post_init__(self) -> None:
        if len(self.trace_id) != TRACE_ID_BYTES or len(self.span_id) != SPAN_ID_BYTES:
            raise ValueError("a trace id has 16 bytes and a span id 8")
        if self.trace_id == _NO_TRACE or self.span_id == _NO_SPAN:
            raise ValueError("an id of zeros names no span")

    @property
    def is_sampled(self) -> bool:
        """Tell whether the trace is recorded."""
        return bool(self.flags & SAMPLED)


class Link(Frozen, gc=False):
    """Another span that this one has to do with, without being its child."""

    context: SpanContext
    attributes: Attributes = ()


class Span(Frozen, gc=False):
    """One span, which has ended."""

    resource: Resource
    """Of the process whose work it is."""
    name: str
    context: SpanContext
    start_ns: int
    """Nanoseconds since the epoch, on the wall clock."""
    end_ns: int
    parent_id: bytes = b""
    """8 bytes; empty for the first span of a trace."""
    is_parent_remote: bool = False
    kind: SpanKind = SpanKind.INTERNAL
    attributes: Attributes = ()
    links: tuple[Link, ...] = ()
    status: SpanStatus = SpanStatus.UNSET
    status_message: str = ""

    def __post_init__(self) -> None:
        if len(self.parent_id) not in (0, SPAN_ID_BYTES):
            raise ValueError("the id of a parent has 8 bytes, or none")
        if self.end_ns < self.start_ns:
            raise ValueError("a span ends before it begins")


@dataclass(frozen=True, slots=True)
class SpanSpec:
    """The declaration of one span."""

    name: str
    """As it stands in the documentation: `{METHOD} {route}`, `gpu batch`."""
    kind: SpanKind
    description: str
    attributes: tuple[str, ...] = ()
    """Names of those that it may carry; each is declared as an `AttributeSpec`."""
    stability: str = "development"
