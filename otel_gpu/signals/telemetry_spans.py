"""Which spans can otel-gpu emit? Each declared once, and the attributes that they may carry.

Names are the semantic conventions' for servers of HTTP, of remote calls and of models, where they have them. What the GPU
did has the names of the metrics that count the same for a whole process.
"""

from __future__ import annotations

from .spans import Span, SpanKind, SpanSpec
from .telemetry import AttributeSpec

_DIRECTIONS = {"h2d": "from host to device", "d2h": "from device to host", "d2d": "from device to device"}

_LAUNCHES = (
    AttributeSpec("gpu.cuda.kernel.launch.calls", "Kernel launches, as of the metric of this name."),
    AttributeSpec("gpu.cuda.graph.launch.calls", "CUDA graph launches, as of the metric of this name."),
)
_COPIES = (
    *(AttributeSpec(f"gpu.cuda.memory.copy.calls.{d}", f"Copies {words}.") for d, words in _DIRECTIONS.items()),
    *(AttributeSpec(f"gpu.cuda.memory.copy.bytes.{d}", f"Bytes copied {words}.") for d, words in _DIRECTIONS.items()),
)
_WAITS = (AttributeSpec("gpu.cuda.synchronize.duration", "Seconds that the host waited in blocking calls."),)

TOTALS = (*_LAUNCHES, *_COPIES, *_WAITS)
"""What was done on the GPU: exact or left out, as may be what is zero."""

_ATTRIBUTION = AttributeSpec(
    "otel_gpu.attribution",
    "Whether all of it is known to be the request's, or a share of a batch is part of it.",
    ("exact", "share"),
)
_LINKED = AttributeSpec(
    "otel_gpu.linked",
    "Whether the links are the requests that were served, or some more; of `partial` one may be missing, as messages of "
    "several requests were alike, or somebody else was not answered yet, and then no request has a share.",
    ("exact", "superset", "partial"),
)
_LINKS_LEFT_OUT = AttributeSpec("otel_gpu.links.left_out", "Requests that a step may have served, beyond 128 links.")
_REQUEST = (
    AttributeSpec("client.address", "Where the request came from."),
    AttributeSpec(
        "gen_ai.operation.name", "What a model was asked for, by the path.", ("chat", "text_completion", "embeddings")
    ),
    AttributeSpec("gen_ai.provider.name", "Whose interface the path is: `openai`.", ("openai",)),
    AttributeSpec("gen_ai.request.stream", "Whether the response is a stream of events."),
    AttributeSpec("http.request.body.size", "Bytes of the request's body."),
    AttributeSpec("http.request.method", "The method; `_OTHER` for what is none of the known."),
    AttributeSpec("http.request.method_original", "The method that was sent, where it is none of the known."),
    AttributeSpec("http.response.body.size", "Bytes of the response's body."),
    AttributeSpec("http.response.status_code", "The status of the response."),
    AttributeSpec("network.peer.address", "The other end of the connection."),
    AttributeSpec("network.peer.port", "Its port."),
    AttributeSpec("network.protocol.version", "Of HTTP.", ("1.0", "1.1", "2")),
    AttributeSpec(
        "otel_gpu.cut",
        "Why a span is not whole: the connection closed before the response was, the agent ended, it began before the agent "
        "saw it, or its end could not be found; of a callback its end was not seen.",
        ("connection_closed", "agent_ended", "began_before", "protocol_lost"),
    ),
    AttributeSpec("otel_gpu.spans.left_out", "Pieces of work that are in the totals and have no span."),
    AttributeSpec("rpc.method", "The method, with its service; `_OTHER` for what the server does not have."),
    AttributeSpec("rpc.method_original", "The method that was asked for, where the server does not have it."),
    AttributeSpec("rpc.response.status_code", "The status, by its name."),
    AttributeSpec("rpc.system.name", "The system of calls: `grpc`, of callbacks `ros2`."),
    AttributeSpec("server.address", "The host that was asked for, or where the server listens."),
    AttributeSpec("server.port", "Its port."),
    AttributeSpec("url.path", "The path, without its query, at most 128 bytes."),
    AttributeSpec("url.scheme", "How the request came.", ("http", "https")),
    AttributeSpec(
        "url.template",
        "The path without its ids; of metrics `other` beyond the first 100 of a process. It is not `http.route`, which only "
        "the server's framework knows.",
    ),
)

_OF_ALL_CALLBACKS = (
    AttributeSpec(
        "messaging.destination.name",
        "The topic of a callback's message; of metrics `other` beyond the first 100 of a process.",
    ),
    AttributeSpec(
        "otel_gpu.callback.kind",
        "What a callback of ROS 2 is for; `client` is the response to what the program asked of a service, `waitable` anything "
        "else that executors wait for.",
        ("subscription", "timer", "service", "client", "waitable"),
    ),
)
_OF_CALLBACKS = (
    AttributeSpec(
        "messaging.message.id",
        "Which message a callback of ROS 2 got: the id of who sent it, and its number there. Of topics from Humble on, "
        "where the middleware numbers messages.",
    ),
    AttributeSpec("messaging.operation.name", "What was done with the message.", ("process",)),
    AttributeSpec("messaging.operation.type", "The same, by its kind.", ("process",)),
    AttributeSpec("messaging.system", "Whose message it is: `ros2`."),
)
ATTRIBUTES = (*TOTALS, _ATTRIBUTION, _LINKED, _LINKS_LEFT_OUT, *_REQUEST, *_OF_ALL_CALLBACKS, *_OF_CALLBACKS)
"""Every attribute of a span, but for `error.type`, which metrics have too."""


def _names(*attributes: AttributeSpec) -> tuple[str, ...]:
    return tuple(sorted(a.name for a in attributes))


REQUEST = SpanSpec(
    "{METHOD} {route}",
    SpanKind.SERVER,
    "A request, from the first byte of its head to the last of the response, with what the GPU did for it; trace id and "
    "parent are those of `traceparent`. `{route}` is `url.template`; a remote call is named by its `rpc.method`.",
    tuple(sorted((*_names(*TOTALS, _ATTRIBUTION, *_REQUEST), "error.type"))),
)
_CALLBACK = (
    *_names(*TOTALS, _ATTRIBUTION),
    "error.type",
    "otel_gpu.callback.kind",
    "otel_gpu.cut",
    "otel_gpu.spans.left_out",
)
MESSAGE = SpanSpec(
    "process {topic}",
    SpanKind.CONSUMER,
    "A callback of ROS 2 that an executor ran for a message of a topic, with what the GPU did for it.",
    tuple(sorted((*_CALLBACK, *_names(*_OF_CALLBACKS), "messaging.destination.name"))),
)
SERVICE_CALL = SpanSpec(
    "{service}",
    SpanKind.SERVER,
    "A callback of ROS 2 that an executor ran for a request to a service, with what the GPU did for it.",
    tuple(sorted((*_CALLBACK, "messaging.message.id", "rpc.method", "rpc.system.name"))),
)
CALLBACK = SpanSpec(
    "callback {kind}",
    SpanKind.INTERNAL,
    "Any other callback of ROS 2 that an executor ran: of a timer, for the response of a service, or of what else it waits for.",
    tuple(sorted((*_CALLBACK, "messaging.message.id", "rpc.method", "rpc.system.name"))),
)
GPU_REQUEST = SpanSpec(
    "gpu request",
    SpanKind.INTERNAL,
    "A request for which the program's own tracing has a span, whose child this is: in place of the span of kind SERVER, it "
    "carries what the GPU did for the request.",
    tuple(sorted((*_names(*TOTALS, _ATTRIBUTION), "otel_gpu.spans.left_out"))),
)
GPU_BATCH = SpanSpec(
    "gpu batch",
    SpanKind.INTERNAL,
    "Work on the GPU for a request, from its first launch to the end that the host saw; its child, or "
    "that of the program's own span in which it was asked for, as all children of a request.",
    _names(*_LAUNCHES, _ATTRIBUTION),
)
GPU_WAIT = SpanSpec(
    "gpu wait",
    SpanKind.INTERNAL,
    "A blocking call of a request, in which the host waited for the GPU; its child.",
    _names(*_WAITS, _ATTRIBUTION),
)
GPU_COPY = SpanSpec(
    "gpu copy",
    SpanKind.INTERNAL,
    "A blocking copy of a request; its child.",
    _names(*_COPIES, *_WAITS, _ATTRIBUTION),
)
GPU_STEP = SpanSpec(
    "gpu step",
    SpanKind.INTERNAL,
    "A step of an engine that serves several requests at once, of the engine's process; it links to the spans of the "
    "requests that it served.",
    _names(*TOTALS, _LINKED, _LINKS_LEFT_OUT),
)
NCCL_COLLECTIVE = SpanSpec(
    "nccl collective",
    SpanKind.INTERNAL,
    "A rank's call of a collective, from its arrival (within a group, the group's end) to its return. The calls of all ranks of "
    "one collective are one trace, on whatever hosts; `otel-gpu stragglers` reads them.",
    (
        "nccl.collective",
        "nccl.comm.hash",
        "nccl.count",
        "nccl.datatype",
        "nccl.in_flight",
        "nccl.nranks",
        "nccl.rank",
        "nccl.reduction",
        "nccl.root",
        "nccl.sequence",
    ),
)

SPANS = (
    REQUEST,
    MESSAGE,
    SERVICE_CALL,
    CALLBACK,
    GPU_REQUEST,
    GPU_BATCH,
    GPU_WAIT,
    GPU_COPY,
    GPU_STEP,
    NCCL_COLLECTIVE,
)
"""Every span, in the order in which the document shows it."""
_BY_NAME = {spec.name: spec for spec in SPANS if "{" not in spec.name}
_OF_KIND = {spec.kind: spec for spec in (MESSAGE, SERVICE_CALL, CALLBACK)}


def specification(span: Span) -> SpanSpec | None:
    """Return which of the declared spans it is; None for none."""
    if any(key == "otel_gpu.callback.kind" for key, _ in span.attributes):
        return _OF_KIND.get(span.kind)
    return REQUEST if span.kind is SpanKind.SERVER else _BY_NAME.get(span.name)


def declaration(span: Span) -> SpanSpec | None:
    """Return how a span is declared; None for one that is not, or that carries what its declaration does not name."""
    spec = specification(span)
    if spec is None or spec.kind is not span.kind:
        return None
    return spec if {key for key, _ in span.attributes} <= set(spec.attributes) else None
