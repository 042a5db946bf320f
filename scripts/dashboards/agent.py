"""Does the agent see everything, does what it says arrive, and what does it cost?"""

from __future__ import annotations

from .board import TO_PROCESS, Board, Row
from .panels import RED, YELLOW, Column, Lines, Number, Query, Rows
from .promql import PROCESS, gauge, quantile, quantile_of_all, rate, share

_HOST = ("host.name",)
_EXPORTED = "otel.sdk.exporter.metric_data_point.exported"
_EXPORTER = ("host.name", "otel.component.name")
_NAMED = "{{host_name}} {{otel_component_name}}"
_FULL = f"{gauge('otel_gpu.map.entries', ('host.name', 'bpf.map.name'))} / {gauge('otel_gpu.map.capacity', ('host.name', 'bpf.map.name'))}"

BOARD = Board(
    "agent",
    "Agent health",
    "Whether the agents see everything, whether what they say arrives, and what they cost.",
    (
        Row(
            "Now",
            (
                Number(
                    "Agents",
                    "That speak now.",
                    "none",
                    (Query(f"count({gauge('otel_gpu.component.health', ('instance',))})", "agents"),),
                ),
                Number(
                    "Parts that fail",
                    "Parts of agents that fail, hang or have ended (alert OtelGpuUnhealthy). The agent's log says why.",
                    "none",
                    (
                        Query(
                            "count("
                            + gauge("otel_gpu.component.health", ("instance", "otel_gpu.component"), over="min")
                            + " == 0) or vector(0)",
                            "failing",
                        ),
                    ),
                    limits=((1, RED),),
                ),
                Number(
                    "Lost",
                    "What could not be counted in full, a second (alert OtelGpuEventsLost).",
                    "ops",
                    (Query(rate("otel_gpu.events.lost"), "lost"),),
                    limits=((1e-9, RED),),
                ),
                Number(
                    "Not delivered",
                    "Share of data points that did not arrive.",
                    "percentunit",
                    (Query(share(rate(_EXPORTED, (), 'error_type!=""'), rate(_EXPORTED)), "not delivered"),),
                    limits=((0.001, YELLOW), (0.01, RED)),
                ),
                Number(
                    "CPU",
                    "Of the agent that needs most, in cores.",
                    "none",
                    (Query(f"max({rate('process.cpu.time', ('instance',))})", "cores"),),
                    limits=((0.1, YELLOW), (0.5, RED)),
                ),
                Number(
                    "Memory",
                    "Of the agent that needs most.",
                    "bytes",
                    (Query(gauge("process.memory.usage", (), over="max"), "resident"),),
                ),
            ),
        ),
        Row(
            "Does it see everything?",
            (
                Rows(
                    "Agents",
                    "One row a host.",
                    "short",
                    (
                        Query(gauge("otel_gpu.component.health", ("host.name", "service.version"), over="min")),
                        Query(gauge("otel_gpu.probes", ("host.name", "service.version"), 'otel_gpu_state="attached"')),
                        Query(rate("process.cpu.time", ("host.name", "service.version"))),
                        Query(gauge("process.memory.usage", ("host.name", "service.version"))),
                    ),
                    columns=(
                        Column("A", "Healthy", "bool_yes_no"),
                        Column("B", "Probes", "none"),
                        Column("C", "Cores", "none"),
                        Column("D", "Memory", "bytes"),
                    ),
                    names={"host_name": "Host", "service_version": "Version"},
                ),
                Lines(
                    "Health, by part",
                    "1 while a part does its work.",
                    "none",
                    (
                        Query(
                            gauge("otel_gpu.component.health", ("host.name", "otel_gpu.component"), over="min"),
                            "{{host_name}} {{otel_gpu_component}}",
                        ),
                    ),
                ),
                Lines(
                    "Failures, by part",
                    "How often a piece of work failed unexpectedly, a second; the part went on.",
                    "ops",
                    (
                        Query(
                            rate("otel_gpu.component.failures", ("host.name", "otel_gpu.component")),
                            "{{host_name}} {{otel_gpu_component}}",
                        ),
                    ),
                ),
                Lines(
                    "Lost, by kind",
                    "What could not be counted in full, a second. docs/operations.md says of each kind what is still exact.",
                    "ops",
                    (
                        Query(
                            rate("otel_gpu.events.lost", ("host.name", "otel_gpu.event")),
                            "{{host_name}} {{otel_gpu_event}}",
                        ),
                    ),
                ),
                Lines(
                    "Lost, by process",
                    "What a process did beyond its share of a table, a second.",
                    "ops",
                    (
                        Query(
                            rate("otel_gpu.process.events.lost", (*PROCESS, "otel_gpu.event")),
                            "{{job}} {{process_pid}} on {{host_name}} {{otel_gpu_event}}",
                        ),
                    ),
                    links=(TO_PROCESS,),
                ),
                Lines(
                    "Tables, how full",
                    "Entries by capacity. What does not fit is counted with less detail, and said above.",
                    "percentunit",
                    (Query(_FULL, "{{host_name}} {{bpf_map_name}}"),),
                    limits=((0.8, YELLOW), (1, RED)),
                ),
                Lines(
                    "Probes, by state",
                    "`failed` and `skipped` ones: `otel-gpu inspect PID` says why.",
                    "none",
                    (
                        Query(
                            gauge("otel_gpu.probes", ("host.name", "otel_gpu.state")),
                            "{{host_name}} {{otel_gpu_state}}",
                        ),
                    ),
                    stacked=True,
                ),
                Lines(
                    "Late by",
                    "From when a process maps a library to when its probes are in place, at the chosen quantile since the agent "
                    "started. What the process does in between is not counted.",
                    "s",
                    (Query(quantile_of_all("otel_gpu.attach.delay", _HOST), "{{host_name}}"),),
                ),
                Lines(
                    "Kernels without a name",
                    "Whose name is looked for (`pending`: their counts are held back) or not found.",
                    "none",
                    (
                        Query(
                            gauge("otel_gpu.kernels.unnamed", ("host.name", "otel_gpu.state")),
                            "{{host_name}} {{otel_gpu_state}}",
                        ),
                    ),
                ),
                Lines(
                    "Stacks",
                    "Taken for profiles, a second, and those that are not whole.",
                    "ops",
                    (
                        Query(
                            rate("otel_gpu.stacks", ("host.name", "otel_gpu.state")), "{{host_name}} {{otel_gpu_state}}"
                        ),
                    ),
                ),
                Lines(
                    "Said with less",
                    "Measurements without a series of their own, attributes that were cut, and processes whose environment could not be "
                    "read, a second.",
                    "ops",
                    (
                        Query(rate("otel_gpu.series.overflow") + " or vector(0)", "too many series"),
                        Query(rate("otel_gpu.resource.attributes.cut", _HOST), "{{host_name}} attributes cut"),
                        Query(rate("otel_gpu.processes.unread", _HOST), "{{host_name}} processes unread"),
                    ),
                ),
            ),
        ),
        Row(
            "Does it arrive?",
            (
                Lines(
                    "Data points",
                    "A second, by exporter: sent without an error, or why not.",
                    "ops",
                    (Query(rate(_EXPORTED, (*_EXPORTER, "error.type")), _NAMED + " {{error_type}}"),),
                ),
                Lines(
                    "Spans",
                    "A second, by exporter.",
                    "ops",
                    (
                        Query(
                            rate("otel.sdk.exporter.span.exported", (*_EXPORTER, "error.type")),
                            _NAMED + " {{error_type}}",
                        ),
                    ),
                ),
                Lines(
                    "Samples of profiles",
                    "A second, by exporter.",
                    "ops",
                    (
                        Query(
                            rate("otel_gpu.exporter.profile_sample.exported", (*_EXPORTER, "error.type")),
                            _NAMED + " {{error_type}}",
                        ),
                    ),
                ),
                Lines(
                    "Under way",
                    "Data points and spans that were handed over and did not arrive yet: they grow while a backend does not answer.",
                    "none",
                    (
                        Query(gauge("otel.sdk.exporter.metric_data_point.inflight", _EXPORTER), _NAMED + " points"),
                        Query(gauge("otel.sdk.exporter.span.inflight", _EXPORTER), _NAMED + " spans"),
                        Query(gauge("otel_gpu.exporter.profile_sample.inflight", _EXPORTER), _NAMED + " samples"),
                    ),
                ),
                Lines(
                    "Requests, how long",
                    "From the first try to the end of a request to a backend, at the chosen quantile.",
                    "s",
                    (Query(quantile("otel.sdk.exporter.operation.duration", _EXPORTER), _NAMED),),
                ),
            ),
        ),
        Row(
            "What does it cost?",
            (
                Lines(
                    "CPU",
                    "Cores that the agent uses, by mode.",
                    "none",
                    (Query(rate("process.cpu.time", ("host.name", "cpu.mode")), "{{host_name}} {{cpu_mode}}"),),
                    stacked=True,
                ),
                Lines(
                    "Memory",
                    "Resident memory of the agent, by host.",
                    "bytes",
                    (Query(gauge("process.memory.usage", _HOST), "{{host_name}}"),),
                ),
                Lines(
                    "Reading the kernel's tables",
                    "How long it takes each interval, at the chosen quantile.",
                    "s",
                    (Query(quantile("otel.sdk.metric_reader.collection.duration", _HOST), "{{host_name}}"),),
                ),
                Lines(
                    "Handing over",
                    "How long it takes to encode an interval and to hand it over, at the chosen quantile.",
                    "s",
                    (Query(quantile("otel_gpu.export.handover.duration", _EXPORTER), _NAMED),),
                ),
            ),
        ),
    ),
)
