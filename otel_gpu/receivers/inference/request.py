"""What is known of one request that a server was asked? Everything, as one value, once it has ended or was cut."""

from __future__ import annotations

import enum

from msgspec import Struct

from ...signals.metrics import Resource
from ...signals.spans import SAMPLED, SpanContext


class Ending(enum.Enum):
    """How a request ended; the value is that of the attribute `otel_gpu.cut`, where it was not answered in full."""

    COMPLETE = ""
    CONNECTION_CLOSED = "connection_closed"
    """By either side, before the response was whole."""
    AGENT_ENDED = "agent_ended"
    """It went on when the agent ended."""
    BEGAN_BEFORE = "began_before"
    """It had begun before the agent saw its connection: when is not known, nor what it asked."""
    PROTOCOL_LOST = "protocol_lost"
    """Bytes were not seen, or not understood, so that its end could not be found; of a callback: its end was not seen."""
    EXCEPTION = "exception"
    """An exception left the callback."""

    __hash__ = object.__hash__  # there is one object of each: a third of what hashing its name takes


class Attribution(enum.Enum):
    """How the GPU's work was found to be the request's; the value is that of `otel_gpu.attribution`."""

    EXACT = "exact"
    SHARE = "share"
    """A share of a batch is part of it."""

    __hash__ = object.__hash__  # as above


class WorkKind(enum.Enum):
    """A piece of a request's GPU work; the value is the span's name."""

    BATCH = "gpu batch"
    """From the first launch to the end that the host saw."""
    WAIT = "gpu wait"
    COPY = "gpu copy"

    __hash__ = object.__hash__  # as above


class GpuTotals(Struct, frozen=True, gc=False):
    """What the GPU was asked to do. None is not known, which is not zero."""

    launches: int | None = None
    graph_launches: int | None = None
    copies_h2d: int | None = None
    copies_d2h: int | None = None
    copies_d2d: int | None = None
    bytes_h2d: int | None = None
    bytes_d2h: int | None = None
    bytes_d2d: int | None = None
    synchronize_ns: int | None = None
    """How long the host waited in blocking calls."""


NOT_KNOWN = GpuTotals()


class GpuWork(Struct, frozen=True, gc=False):
    """One piece of the work, with totals of its own, which are part of the request's."""

    kind: WorkKind
    start_ns: int
    """Nanoseconds since the epoch, on the wall clock, as all times here."""
    end_ns: int
    totals: GpuTotals = NOT_KNOWN
    own_parent: bytes = b""
    """The program's own span whose work it was; empty for none, or several."""

    def __post_init__(self) -> None:
        if self.end_ns < self.start_ns:
            raise ValueError("work ends before it begins")


class OwnSpan(Struct, frozen=True, gc=False):
    """The span that the program's own tracing had for a request: the first that was current while it worked for it."""

    trace_id: bytes
    span_id: bytes
    flags: int | None
    """Of the trace; None where they are not known."""
    server_id: bytes = b""
    """Of kind SERVER in that trace, where one was current."""
    is_entry: bool = False
    """The program has one for the whole request: who told of it names none else, or it is the child of another one."""

    def context(self, parent: SpanContext | None) -> SpanContext:
        """Return its name. `parent` is the request's caller."""
        flags = self.flags if self.flags is not None else parent.flags if parent else SAMPLED
        return SpanContext(self.trace_id, self.server_id or self.span_id, flags=flags)

    def stands_for(self, parent: SpanContext | None) -> bool:
        """Tell whether the program made a span for the request itself."""
        if parent is not None and parent.trace_id == self.trace_id:
            return parent.span_id != self.span_id
        return bool(self.server_id) or self.is_entry


class Endpoint(Struct, frozen=True, gc=False):
    """One end of a connection."""

    address: str
    """Numeric, or the path of a Unix socket."""
    port: int | None = None


class Stream(Struct, frozen=True, gc=False):
    """A response that was sent in pieces."""

    chunks: int
    first_ns: int
    """When the first piece of the body was sent; the head may have been sent long before."""
    last_ns: int
    is_event_stream: bool = False
    """Server-sent events, as its content type says: what generates text streams so."""


class RpcCall(Struct, frozen=True, gc=False):
    """What a remote procedure call has beyond its HTTP request."""

    method: str
    """Fully qualified: `package.Service/Method`."""
    status_code: int | None = None
    """The number in `grpc-status`."""
    system: str = "grpc"


class CallbackKind(enum.Enum):
    """What a callback is for; the value is that of `otel_gpu.callback.kind`."""

    SUBSCRIPTION = "subscription"
    TIMER = "timer"
    SERVICE = "service"
    CLIENT = "client"
    """The response to what the program asked of a service."""
    WAITABLE = "waitable"
    """Anything else that an executor waits for: actions, events, messages within the process."""


class Callback(Struct, frozen=True, gc=False):
    """What a callback has that an executor ran, in place of what was asked over HTTP."""

    kind: CallbackKind
    name: str = ""
    """Of the topic or the service; empty where it is not known."""
    message_id: str = ""
    """Of the message that it got: who sent it, and its number there; empty where that is not known."""


class Request(Struct, frozen=True, gc=False):
    """One request, as the process that served it saw it."""

    resource: Resource
    """Of that process."""
    start_ns: int
    """When the first byte of its head had been read."""
    end_ns: int
    """When the last byte of the response had been sent, or it was cut."""
    method: str = ""
    """As it was sent; empty where it is not known."""
    path: str = ""
    """Without query and fragment, printable and bounded: what `routes.path_of` makes of a target."""
    route: str = ""
    """The path with its ids left out, of a call its method, as `routes.Routes` admits it; empty where it is not known."""
    version: str = ""
    """Of HTTP, as `network.protocol.version` has it: `1.0`, `1.1`, `2`."""
    status: int | None = None
    request_body_bytes: int | None = None
    """As sent: with a chunked body, without what frames its chunks."""
    response_body_bytes: int | None = None
    first_byte_ns: int | None = None
    """When the first byte of the response was sent, interim responses left out."""
    stream: Stream | None = None
    """None where the response was not streamed."""
    peer: Endpoint | None = None
    local: Endpoint | None = None
    host: str = ""
    """The request's `Host`, as it was sent."""
    scheme: str = "http"
    parent: SpanContext | None = None
    """Whose child it is, by the request's `traceparent` and `tracestate`."""
    context: SpanContext | None = None
    """Names its span where that had to be known before it ended, as for links; else it gets a name in the end."""
    rpc: RpcCall | None = None
    totals: GpuTotals = NOT_KNOWN
    attribution: Attribution = Attribution.EXACT
    work: tuple[GpuWork, ...] = ()
    work_left_out: int = 0
    """Pieces of work that had no room: they are in the totals alone."""
    ending: Ending = Ending.COMPLETE
    own: OwnSpan | None = None
    """Of the program's own tracing; None where it has none, or none is known."""
    callback: Callback | None = None
    """It is one of an executor, and was asked by nobody over HTTP."""

    def __post_init__(self) -> None:
        if self.end_ns < self.start_ns:
            raise ValueError("a request ends before it begins")

    @property
    def duration_s(self) -> float:
        """How long it took."""
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def is_sampled(self) -> bool:
        """Tell whether it gets spans: unless its caller said no."""
        own = self.own.context(self.parent) if self.own else None
        named = own or self.context or self.parent
        return named is None or named.is_sampled
