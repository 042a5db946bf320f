"""What is measured of requests? The conventions' metrics of servers, and what the GPU did for a request, by route.

The conventions forbid a path in `http.route`, so that routes are in `url.template`. What a request cost has names of its
own, beside the totals of the process that `gpu.cuda.*` are.
"""

from __future__ import annotations

from ...signals.metrics import Instrument, MetricSpec

_COUNTER, _HISTOGRAM = Instrument.COUNTER, Instrument.HISTOGRAM
_ROUTE = ("http.request.method", "otel_gpu.attribution", "rpc.method", "url.template")
_MODEL = ("gen_ai.operation.name", "gen_ai.provider.name")

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
_CALLBACK = ("messaging.destination.name", "otel_gpu.callback.kind", "rpc.method")
CALLBACK_DURATION = MetricSpec(
    "otel_gpu.callback.duration",
    "s",
    _HISTOGRAM,
    "How long callbacks took that an executor of ROS 2 ran.",
    ("error.type", *_CALLBACK),
    floating=True,
)
CALLBACK_LAUNCHES = MetricSpec(
    "otel_gpu.callback.kernel.launch.calls", "{call}", _HISTOGRAM, "Kernel launches of each such callback.", _CALLBACK
)
REQUESTS_CUT = MetricSpec(
    "otel_gpu.requests.cut",
    "{request}",
    _COUNTER,
    "Requests, and callbacks, whose beginning or end was not seen: they are in no histogram.",
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
    CALLBACK_DURATION,
    CALLBACK_LAUNCHES,
    REQUESTS_CUT,
    UNATTRIBUTED_LAUNCHES,
)
"""Every metric of the receiver, for the registry."""
