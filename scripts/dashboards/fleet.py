"""Are the GPUs of all hosts used, by whom, and what is wrong where?"""

from __future__ import annotations

from .board import TO_NODE, TO_PROCESS, Board, Row
from .panels import RED, YELLOW, Column, Lines, Number, Query, Rows
from .promql import count_rate, gauge, quantile, rate, share, sum_rate

_HOST = ("host.name",)
_SERVICE = ("job",)
_ALERTS = (
    'sum by (alertname, severity) (ALERTS{alertstate="firing", alertname=~"(Gpu|OtelGpu|Nccl|Rdma).*"}) or vector(0)'
)
_GPUS = 'count(count by (hw_id) (hw_gpu_memory_limit_bytes{host_name=~"$host", hw_id=~"$gpu"}))'

BOARD = Board(
    "fleet",
    "Fleet",
    "The GPUs of all hosts at a glance: how much they work, for which services, and where something is wrong.",
    (
        Row(
            "Now",
            (
                Number(
                    "Hosts",
                    "Hosts whose agent speaks. Fewer than there are machines with GPUs: the agent is not everywhere, or "
                    "its data do not arrive (alert OtelGpuAbsent).",
                    "none",
                    (Query(f"count({gauge('otel_gpu.component.health', _HOST)})", "hosts"),),
                ),
                Number(
                    "GPUs",
                    "GPUs, and instances of partitioned ones, that these hosts have.",
                    "none",
                    (Query(_GPUS, "GPUs"),),
                ),
                Number(
                    "Busy",
                    "How much of their time the GPUs ran any kernel, on average. It says that there was work, not how "
                    "much of a GPU the work filled.",
                    "percentunit",
                    (Query(gauge("hw.gpu.utilization", (), 'hw_gpu_task="general"', over="avg"), "busy"),),
                    limits=((0.3, YELLOW), (0.6, "green")),
                    low_is_bad=True,
                ),
                Number(
                    "Memory in use",
                    "Share of all GPU memory that is taken. Frameworks take memory ahead of need: this alone is no sign of "
                    "work.",
                    "percentunit",
                    (Query(f"{gauge('hw.gpu.memory.usage')} / {gauge('hw.gpu.memory.limit')}", "memory"),),
                    limits=((0.9, YELLOW), (0.97, RED)),
                ),
                Number(
                    "Power",
                    "What the GPUs draw together.",
                    "watt",
                    (Query(gauge("hw.power"), "power"),),
                ),
                Number(
                    "Alerts",
                    "Rules of collector-config/rules.yaml that fire now; each links to what to do.",
                    "none",
                    (Query(f"sum({_ALERTS})", "firing"),),
                    limits=((1, RED),),
                ),
            ),
        ),
        Row(
            "Hosts",
            (
                Rows(
                    "Hosts",
                    "One row a host: how busy its GPUs are, how full, how hot, and what they complained of in the last hour.",
                    "short",
                    (
                        Query(gauge("hw.gpu.memory.limit", _HOST, over="count")),
                        Query(gauge("hw.gpu.utilization", _HOST, 'hw_gpu_task="general"', over="avg")),
                        Query(f"{gauge('hw.gpu.memory.usage', _HOST)} / {gauge('hw.gpu.memory.limit', _HOST)}"),
                        Query(gauge("hw.power", _HOST)),
                        Query(gauge("hw.temperature", _HOST, over="max")),
                        Query(
                            'sum by (host_name) (increase(hw_errors_total{host_name=~"$host", hw_id=~"$gpu", '
                            'error_type!="corrected"}[1h]))'
                        ),
                    ),
                    columns=(
                        Column("A", "GPUs", "none"),
                        Column("B", "Busy", "percentunit"),
                        Column("C", "Memory", "percentunit", ((0.9, YELLOW), (0.97, RED))),
                        Column("D", "Power", "watt"),
                        Column("E", "Hottest", "celsius", ((80, YELLOW), (90, RED))),
                        Column("F", "Errors in 1 h", "none", ((1, RED),)),
                    ),
                    names={"host_name": "Host"},
                    links=(TO_NODE,),
                ),
                Lines(
                    "Busy, by host",
                    "Share of time in which any kernel ran, on average over a host's GPUs. A host that falls behind the "
                    "others of a training job slows all of them.",
                    "percentunit",
                    (Query(gauge("hw.gpu.utilization", _HOST, 'hw_gpu_task="general"', over="avg"), "{{host_name}}"),),
                    highest=1,
                    links=(TO_NODE,),
                ),
                Lines(
                    "Errors, by host and kind",
                    "XID events, uncorrected memory errors and PCIe replays a second. Anything but zero wants a look "
                    "(alerts GpuXid, GpuUncorrectedErrors).",
                    "short",
                    (
                        Query(
                            rate("hw.errors", ("host.name", "error.type"), 'error_type!="corrected"'),
                            "{{host_name}} {{error_type}}",
                        ),
                    ),
                    links=(TO_NODE,),
                ),
            ),
        ),
        Row(
            "Services",
            (
                Lines(
                    "GPU time, by service",
                    "GPUs that a service keeps busy, at most: 2 is two GPUs all the time. The bound comes from when work was "
                    "submitted and when the host saw its end.",
                    "none",
                    (Query(rate("gpu.cuda.busy.time", _SERVICE, 'otel_gpu_bound="upper"'), "{{job}}"),),
                    stacked=True,
                    links=(TO_PROCESS,),
                ),
                Lines(
                    "GPU memory, by service",
                    "What processes of a service have allocated and not freed.",
                    "bytes",
                    (Query(gauge("gpu.cuda.memory.usage", _SERVICE), "{{job}}"),),
                    stacked=True,
                    links=(TO_PROCESS,),
                ),
                Lines(
                    "Kernel launches, by service",
                    "Launches a second, those within CUDA graphs apart. A service that stops launching has hung, or has "
                    "nothing to do.",
                    "ops",
                    (
                        Query(rate("gpu.cuda.kernel.launch.calls", _SERVICE), "{{job}}"),
                        Query(rate("gpu.cuda.graph.launch.calls", _SERVICE), "{{job}} graphs"),
                    ),
                    links=(TO_PROCESS,),
                ),
                Lines(
                    "Requests, by service",
                    "HTTP requests a second that were answered (receiver inference).",
                    "reqps",
                    (Query(count_rate("http.server.request.duration", _SERVICE), "{{job}}"),),
                ),
                Lines(
                    "Latency, by service",
                    "How long requests took at the chosen quantile.",
                    "s",
                    (Query(quantile("http.server.request.duration", _SERVICE), "{{job}}"),),
                ),
                Lines(
                    "Waiting for GPUs, by service",
                    "Threads that wait for a GPU at any time, on average: 1 is one thread that does nothing else.",
                    "none",
                    (Query(sum_rate("gpu.cuda.synchronize.duration", _SERVICE), "{{job}}"),),
                    links=(TO_PROCESS,),
                ),
                Lines(
                    "Pageable copies, by service",
                    "Share of the bytes between host and GPU that go through pageable memory, which the driver copies twice "
                    "(alert GpuPageableCopies).",
                    "percentunit",
                    (
                        Query(
                            share(
                                sum_rate("gpu.cuda.memory.copies", _SERVICE, 'cuda_memory_host_type="pageable"'),
                                sum_rate("gpu.cuda.memory.copies", _SERVICE, 'cuda_memory_host_type!=""'),
                            ),
                            "{{job}}",
                        ),
                    ),
                    limits=((0.5, YELLOW),),
                    highest=1,
                ),
                Lines(
                    "Failed driver calls, by service",
                    "Calls of the CUDA driver that returned an error, a second.",
                    "ops",
                    (Query(rate("gpu.cuda.errors", ("job", "error.type")), "{{job}} {{error_type}}"),),
                    links=(TO_PROCESS,),
                ),
            ),
        ),
    ),
)
