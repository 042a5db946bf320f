"""What is measured of requests? The conventions' metrics of servers, and what the GPU did for a request, by route.

The conventions forbid a path in `http.route`, so that routes are in `url.template`. What a request cost has names of its
own, beside the totals of the process that `gpu.cuda.*` are.
"""

from __future__ import annotations

from ...signals.metrics import Instrument, MetricSpec
from ...signals.telemetry import AttributeSpec

_COUNTER, _HISTOGRAM = Instrument.COUNTER, Instrument.HISTOGRAM
_ROUTE = ("http.request.method", "otel_gpu.attribution", "rpc.method", "url.template")
_MODEL = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")

HTTP_DURATION = MetricSpec(
    "http.server.request.duration",
    "s",
    _HISTOGRAM,
    "How long HTTP requests took, from the first byte of their head to the last of the response.",
    (
        "error.type",
        "http.request.method",
        "http.response.status_code",
        "network.protocol.version",
        "url.scheme",
        "url.template",
    ),
    floating=True,
)
RPC_DURATION = MetricSpec(
    "rpc.server.call.duration",
    "s",
    _HISTOGRAM,
    "How long remote procedure calls took.",
    ("error.type", "rpc.method", "rpc.response.status_code", "rpc.system.name"),
    floating=True,
)
GEN_AI_DURATION = MetricSpec(
    "gen_ai.server.request.duration",
    "s",
    _HISTOGRAM,
    "How long requests to a model took.",
    ("error.type", *_MODEL),
    floating=True,
)
GEN_AI_FIRST_TOKEN = MetricSpec(
    "gen_ai.server.time_to_first_token",
    "s",
    _HISTOGRAM,
    "From the first byte of a request to the first chunk of its response, where that is a stream of events.",
    _MODEL,
    floating=True,
)
GEN_AI_PER_TOKEN = MetricSpec(
    "gen_ai.server.time_per_output_token",
    "s",
    _HISTOGRAM,
    "From the first chunk of a stream of events to its last one, by the chunks after the first: bodies are not read, and "
    "a chunk is a token as long as the server keeps up.",
    _MODEL,
    floating=True,
)
LAUNCHES = MetricSpec(
    "gpu.cuda.request.kernel.launch.calls", "{call}", _HISTOGRAM, "Kernel launches of each request.", _ROUTE
)
GRAPH_LAUNCHES = MetricSpec(
    "gpu.cuda.request.graph.launch.calls",
    "{call}",
    _HISTOGRAM,
    "CUDA graph launches of each request that had any.",
    _ROUTE,
)
COPY_BYTES = MetricSpec(
    "gpu.cuda.request.memory.copy.bytes",
    "By",
    _HISTOGRAM,
    "Bytes copied for each request that copied any.",
    ("cuda.memcpy.kind", *_ROUTE),
)
SYNCHRONIZE_DURATION = MetricSpec(
    "gpu.cuda.request.synchronize.duration",
    "s",
    _HISTOGRAM,
    "How long the host waited in blocking calls for each request that waited.",
    _ROUTE,
    floating=True,
)
REQUESTS_CUT = MetricSpec(
    "otel_gpu.requests.cut",
    "{request}",
    _COUNTER,
    "Requests whose beginning or end was not seen: they are in no histogram.",
    ("otel_gpu.reason",),
)
UNATTRIBUTED_LAUNCHES = MetricSpec(
    "otel_gpu.unattributed.launches",
    "{call}",
    _COUNTER,
    "Kernel launches that belong to no request that is known.",
    ("otel_gpu.reason",),
)

SPECS = (
    HTTP_DURATION,
    RPC_DURATION,
    GEN_AI_DURATION,
    GEN_AI_FIRST_TOKEN,
    GEN_AI_PER_TOKEN,
    LAUNCHES,
    GRAPH_LAUNCHES,
    COPY_BYTES,
    SYNCHRONIZE_DURATION,
    REQUESTS_CUT,
    UNATTRIBUTED_LAUNCHES,
)
"""Every metric of the receiver, for the registry."""

ATTRIBUTES = (
    AttributeSpec("client.address", "Where the request came from."),
    AttributeSpec(
        "gen_ai.operation.name", "What a model was asked for, by the path.", ("chat", "text_completion", "embeddings")
    ),
    AttributeSpec("gen_ai.provider.name", "Whose interface the path is: `openai`.", ("openai",)),
    AttributeSpec("gen_ai.request.model", "The model, where bodies may be looked into; `other` beyond the first 32."),
    AttributeSpec("gen_ai.request.stream", "Whether the response is a stream of events."),
    AttributeSpec("gpu.cuda.graph.launch.calls", "CUDA graph launches for this request."),
    AttributeSpec("gpu.cuda.kernel.launch.calls", "Kernel launches for this request."),
    AttributeSpec("gpu.cuda.memory.copy.bytes.d2d", "Bytes copied from device to device for this request."),
    AttributeSpec("gpu.cuda.memory.copy.calls.d2d", "Copies from device to device for this request."),
    AttributeSpec("gpu.cuda.memory.copy.bytes.d2h", "Bytes copied from device to host for this request."),
    AttributeSpec("gpu.cuda.memory.copy.calls.d2h", "Copies from device to host for this request."),
    AttributeSpec("gpu.cuda.memory.copy.bytes.h2d", "Bytes copied from host to device for this request."),
    AttributeSpec("gpu.cuda.memory.copy.calls.h2d", "Copies from host to device for this request."),
    AttributeSpec("gpu.cuda.synchronize.duration", "Seconds that the host waited in blocking calls for this request."),
    AttributeSpec("http.request.body.size", "Bytes of the request's body."),
    AttributeSpec("http.request.method", "The method; `_OTHER` for what is none of the known."),
    AttributeSpec("http.request.method_original", "The method that was sent, where it is none of the known."),
    AttributeSpec("http.response.body.size", "Bytes of the response's body."),
    AttributeSpec("http.response.status_code", "The status of the response."),
    AttributeSpec("network.peer.address", "The other end of the connection."),
    AttributeSpec("network.peer.port", "Its port."),
    AttributeSpec("network.protocol.version", "Of HTTP.", ("1.0", "1.1", "2")),
    AttributeSpec(
        "otel_gpu.attribution",
        "Whether all of it is known to be the request's, or a share of a batch is part of it.",
        ("exact", "share"),
    ),
    AttributeSpec(
        "otel_gpu.cut",
        "Why a span is not whole: the connection closed before the response was, the agent ended, it began before the agent "
        "saw it, or its end could not be found.",
        ("connection_closed", "agent_ended", "began_before", "protocol_lost"),
    ),
    AttributeSpec("otel_gpu.reason", "Why a request was cut, or why a launch has no owner."),
    AttributeSpec("otel_gpu.spans.left_out", "Pieces of work that are in the totals and have no span."),
    AttributeSpec("rpc.method", "The method, with its service; `_OTHER` for what the server does not have."),
    AttributeSpec("rpc.method_original", "The method that was asked for, where the server does not have it."),
    AttributeSpec("rpc.response.status_code", "The status, by its name."),
    AttributeSpec("rpc.system.name", "The system of calls.", ("grpc",)),
    AttributeSpec("server.address", "The host that was asked for, or where the server listens."),
    AttributeSpec("server.port", "Its port."),
    AttributeSpec("url.path", "The path, without its query, at most 128 bytes."),
    AttributeSpec("url.scheme", "How the request came.", ("http", "https")),
    AttributeSpec(
        "url.template",
        "The path without its ids; `other` beyond the first routes of a process. It is not `http.route`, which only the "
        "server's framework knows.",
    ),
)
"""Of the attributes, for the registry."""
