"""How long do requests take, and how much of it is the GPU's?"""

from __future__ import annotations

from .board import TO_PROCESS, Board, Row
from .panels import RED, YELLOW, Heat, Lines, Number, Query
from .promql import buckets, count_rate, mean, quantile, rate, share, sum_rate

_HTTP = "http.server.request.duration"
_ROUTE = ("job", "url.template")
_NAMED = "{{job}} {{url_template}}"
_ERRORS = 'error_type!=""'
_SERVICE = ("job",)

BOARD = Board(
    "requests",
    "Requests",
    "Requests to programs that use GPUs (receiver inference): how many, how long, and what the GPU did for each. Dots are "
    "traces: a click opens them in Tempo.",
    (
        Row(
            "Now",
            (
                Number("Requests a second", "That were answered.", "reqps", (Query(count_rate(_HTTP), "requests"),)),
                Number(
                    "Latency",
                    "At the chosen quantile.",
                    "s",
                    (Query(quantile(_HTTP), "latency"),),
                ),
                Number(
                    "Errors",
                    "Share of requests that ended with an error of the server or whose connection broke.",
                    "percentunit",
                    (Query(share(count_rate(_HTTP, (), _ERRORS), count_rate(_HTTP)), "errors"),),
                    limits=((0.01, YELLOW), (0.05, RED)),
                ),
                Number(
                    "In progress",
                    "Requests that are worked on at any time, on average: their rate times how long they take.",
                    "none",
                    (Query(sum_rate(_HTTP), "in progress"),),
                ),
                Number(
                    "Time to first token",
                    "At the chosen quantile, of requests to models whose answer is a stream.",
                    "s",
                    (Query(quantile("gen_ai.server.time_to_first_token"), "first token"),),
                ),
                Number(
                    "Waiting for GPUs",
                    "Share of the requests' time in which a thread of theirs waited for the GPU.",
                    "percentunit",
                    (
                        Query(
                            share(sum_rate("gpu.cuda.request.synchronize.duration"), sum_rate(_HTTP)),
                            "waiting",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Requests",
            (
                Lines(
                    "Requests, by route",
                    "Requests a second that were answered.",
                    "reqps",
                    (Query(count_rate(_HTTP, _ROUTE), _NAMED),),
                    stacked=True,
                ),
                Lines(
                    "Latency, by route",
                    "At the chosen quantile, from the first byte of the request to the last of the response. A dot is the trace of "
                    "one request.",
                    "s",
                    (Query(quantile(_HTTP, _ROUTE), _NAMED),),
                    exemplars=True,
                ),
                Heat(
                    "Latency, all of it",
                    "How many requests took how long. Two bands are two kinds of requests, or a cache that helps one of them.",
                    "s",
                    (Query(buckets(_HTTP), "{{le}}"),),
                ),
                Lines(
                    "Errors, by route",
                    "Requests a second that ended with an error of the server or whose connection broke.",
                    "reqps",
                    (
                        Query(
                            count_rate(_HTTP, (*_ROUTE, "error.type"), _ERRORS),
                            _NAMED + " {{error_type}}",
                        ),
                    ),
                ),
                Lines(
                    "In progress, beside how busy the GPU is",
                    "Requests that are worked on at any time, and GPUs that are busy at most. Many of the one and little of the "
                    "other: requests wait for the host (alert GpuIdleWhileRequestsWait).",
                    "none",
                    (
                        Query(sum_rate(_HTTP, _SERVICE), "{{job}} requests in progress"),
                        Query(rate("gpu.cuda.busy.time", _SERVICE, 'otel_gpu_bound="upper"'), "{{job}} GPUs busy"),
                    ),
                    links=(TO_PROCESS,),
                ),
            ),
        ),
        Row(
            "Models",
            (
                Lines(
                    "Requests to models",
                    "A second, by what was asked for.",
                    "reqps",
                    (
                        Query(
                            count_rate("gen_ai.server.request.duration", ("job", "gen_ai.operation.name")),
                            "{{job}} {{gen_ai_operation_name}}",
                        ),
                    ),
                ),
                Lines(
                    "How long requests to models take",
                    "At the chosen quantile.",
                    "s",
                    (
                        Query(
                            quantile("gen_ai.server.request.duration", ("job", "gen_ai.operation.name")),
                            "{{job}} {{gen_ai_operation_name}}",
                        ),
                    ),
                    exemplars=True,
                ),
                Lines(
                    "Time to first token",
                    "At the chosen quantile: how long a user looks at nothing. Grows with the queue.",
                    "s",
                    (Query(quantile("gen_ai.server.time_to_first_token", _SERVICE), "{{job}}"),),
                    exemplars=True,
                ),
                Lines(
                    "Time per token",
                    "At the chosen quantile, after the first token, by pieces of the stream. Grows with the batch.",
                    "s",
                    (Query(quantile("gen_ai.server.time_per_output_token", _SERVICE), "{{job}}"),),
                    exemplars=True,
                ),
            ),
        ),
        Row(
            "What the GPU does for a request",
            (
                Lines(
                    "Launches for a request",
                    "On average, by route; of a batch its share. It grows with what is asked for, or with kernels that are no "
                    "longer fused.",
                    "short",
                    (
                        Query(mean("gpu.cuda.request.kernel.launch.calls", _ROUTE), _NAMED),
                        Query(mean("gpu.cuda.request.graph.launch.calls", _ROUTE), _NAMED + " graphs"),
                    ),
                ),
                Lines(
                    "Bytes copied for a request",
                    "On average, by direction.",
                    "bytes",
                    (
                        Query(
                            mean("gpu.cuda.request.memory.copy.bytes", ("job", "cuda.memcpy.kind")),
                            "{{job}} {{cuda_memcpy_kind}}",
                        ),
                    ),
                ),
                Lines(
                    "Waiting for the GPU",
                    "How long a request waited in blocking calls, at the chosen quantile.",
                    "s",
                    (Query(quantile("gpu.cuda.request.synchronize.duration", _ROUTE), _NAMED),),
                ),
                Lines(
                    "Launches that are nobody's",
                    "Launches a second of which it is not known for which request they were.",
                    "ops",
                    (
                        Query(
                            rate("otel_gpu.unattributed.launches", ("job", "otel_gpu.reason")),
                            "{{job}} {{otel_gpu_reason}}",
                        ),
                    ),
                ),
                Lines(
                    "Requests that were seen in part",
                    "They are in no histogram.",
                    "reqps",
                    (Query(rate("otel_gpu.requests.cut", ("job", "otel_gpu.reason")), "{{job}} {{otel_gpu_reason}}"),),
                ),
            ),
        ),
        Row(
            "Remote procedure calls (there only where programs serve gRPC)",
            (
                Lines(
                    "Calls, by method",
                    "Calls a second that were answered.",
                    "reqps",
                    (Query(count_rate("rpc.server.call.duration", ("job", "rpc.method")), "{{job}} {{rpc_method}}"),),
                ),
                Lines(
                    "How long calls take",
                    "At the chosen quantile.",
                    "s",
                    (Query(quantile("rpc.server.call.duration", ("job", "rpc.method")), "{{job}} {{rpc_method}}"),),
                    exemplars=True,
                ),
            ),
            optional=True,
        ),
    ),
)
