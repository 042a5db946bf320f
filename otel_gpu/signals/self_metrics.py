"""What does the agent measure of itself, and by which attributes?"""

from __future__ import annotations

from . import Signal
from .metrics import Instrument, MetricSpec
from .telemetry import AttributeSpec

_COUNTER, _UPDOWN, _GAUGE, _HISTOGRAM = (
    Instrument.COUNTER,
    Instrument.UPDOWNCOUNTER,
    Instrument.GAUGE,
    Instrument.HISTOGRAM,
)
_SDK_COMPONENT = ("otel.component.name", "otel.component.type")

EVENTS_LOST = MetricSpec(
    "otel_gpu.events.lost",
    "{event}",
    _COUNTER,
    "What could not be counted in full: overflow and drops.",
    ("otel_gpu.event",),
)
PROCESS_EVENTS_LOST = MetricSpec(
    "otel_gpu.process.events.lost",
    "{event}",
    _COUNTER,
    "The same of one process, on its own resource: what it did beyond its share of a table, or of the ring buffers, and "
    "what it said that could not be read.",
    ("otel_gpu.event", "bpf.map.name"),
)
GRAPH_UNEXPANDED_LAUNCHES = MetricSpec(
    "otel_gpu.graph.unexpanded.launches",
    "{call}",
    _COUNTER,
    "Graph launches of a process that are counted, but not all that they execute, by why: the graph was made before the agent "
    "came (`older`), and nothing of it is known; it has conditional nodes, whose bodies run as often as the device decides "
    "(`conditional`); it has nodes of a type that the agent cannot read (`unknown_node`); the process has instantiated graphs "
    "for the device to launch (`device_launch`), and of those launches the host hears nothing. Of several reasons the first is "
    "given. Their share of the graph launches is what is not known of them.",
    ("otel_gpu.reason",),
)
MAP_ENTRIES = MetricSpec("otel_gpu.map.entries", "{entry}", _GAUGE, "Entries in a BPF map.", ("bpf.map.name",))
MAP_CAPACITY = MetricSpec("otel_gpu.map.capacity", "{entry}", _GAUGE, "Entries a BPF map can hold.", ("bpf.map.name",))
PROBES = MetricSpec("otel_gpu.probes", "{probe}", _GAUGE, "Probes by state.", ("error.type", "otel_gpu.state"))
STACKS = MetricSpec(
    "otel_gpu.stacks", "{stack}", _COUNTER, "Stacks taken for profiles.", ("otel_gpu.reason", "otel_gpu.state")
)
KERNELS_UNNAMED = MetricSpec(
    "otel_gpu.kernels.unnamed",
    "{kernel}",
    _GAUGE,
    "Kernels that observed programs launch and that have no name. Counts of those whose name is looked for are held back; "
    "those whose name is not found are shown by the file that launches them and their handle.",
    ("otel_gpu.state",),
)
RESOURCE_ATTRIBUTES_CUT = MetricSpec(
    "otel_gpu.resource.attributes.cut",
    "{attribute}",
    _COUNTER,
    "Attributes that observed programs say of themselves and that are left out or shortened.",
    ("otel_gpu.reason",),
)
PROCESSES_UNREAD = MetricSpec(
    "otel_gpu.processes.unread",
    "{process}",
    _COUNTER,
    "Observed programs whose command line or environment could not be read, so that their resource goes without.",
    ("otel_gpu.reason",),
)
SERIES_OVERFLOW = MetricSpec(
    "otel_gpu.series.overflow",
    "{measurement}",
    _COUNTER,
    "What a process measured and has no series of its own, because it has too many: counters and histograms are added up "
    "in one series for each metric, with the attribute `otel.metric.overflow`, and gauges are left out.",
)
ATTACH_DELAY = MetricSpec(
    "otel_gpu.attach.delay",
    "s",
    _HISTOGRAM,
    "From when a process maps a library to when its probes are in place, where they were not there before.",
    floating=True,
)
PROCESSES_LATE = MetricSpec(
    "otel_gpu.processes.late",
    "{process}",
    _COUNTER,
    "Programs that had mapped a library before the agent came, or for more than a second, when its probes were in place: "
    "what they called until then is in no count.",
    ("otel_gpu.reason",),
)
COMPONENT_HEALTH = MetricSpec(
    "otel_gpu.component.health",
    "{component}",
    _GAUGE,
    "Whether a part of the agent does its work: 1, or 0 while it fails, hangs or has ended.",
    ("otel_gpu.component",),
)
COMPONENT_FAILURES = MetricSpec(
    "otel_gpu.component.failures",
    "{failure}",
    _COUNTER,
    "How often the work of a part of the agent, or a piece of it, failed unexpectedly; the part goes on.",
    ("otel_gpu.component",),
)
COLLECTION_DURATION = MetricSpec(
    "otel.sdk.metric_reader.collection.duration",
    "s",
    _HISTOGRAM,
    "Time to read the kernel's maps and all else that is measured, once.",
    _SDK_COMPONENT,
    floating=True,
)
HANDOVER_DURATION = MetricSpec(
    "otel_gpu.export.handover.duration",
    "s",
    _HISTOGRAM,
    "Time for which the thread that collects encodes the metrics of an interval and hands them to an exporter.",
    ("otel.component.name",),
    floating=True,
)
OPERATION_DURATION = MetricSpec(
    "otel.sdk.exporter.operation.duration",
    "s",
    _HISTOGRAM,
    "Time that a request of an exporter took, from the beginning of its first try to the end of its last one.",
    ("error.type", *_SDK_COMPONENT),
    floating=True,
)
EXPORTED: dict[Signal, MetricSpec] = {
    "metrics": MetricSpec(
        "otel.sdk.exporter.metric_data_point.exported",
        "{data_point}",
        _COUNTER,
        "Data points of which the export is over, with success or, where there is an `error.type`, without.",
        ("error.type", *_SDK_COMPONENT),
    ),
    "traces": MetricSpec(
        "otel.sdk.exporter.span.exported",
        "{span}",
        _COUNTER,
        "Spans of which the export is over, with success or, where there is an `error.type`, without.",
        ("error.type", *_SDK_COMPONENT),
    ),
    "profiles": MetricSpec(
        "otel_gpu.exporter.profile_sample.exported",
        "{sample}",
        _COUNTER,
        "Samples of profiles of which the export is over, with success or, where there is an `error.type`, without.",
        ("error.type", *_SDK_COMPONENT),
    ),
}
INFLIGHT: dict[Signal, MetricSpec] = {
    "metrics": MetricSpec(
        "otel.sdk.exporter.metric_data_point.inflight",
        "{data_point}",
        _UPDOWN,
        "Data points that wait to be exported, or are being so.",
        _SDK_COMPONENT,
    ),
    "traces": MetricSpec(
        "otel.sdk.exporter.span.inflight",
        "{span}",
        _UPDOWN,
        "Spans that wait to be exported, or are being so.",
        _SDK_COMPONENT,
    ),
    "profiles": MetricSpec(
        "otel_gpu.exporter.profile_sample.inflight",
        "{sample}",
        _UPDOWN,
        "Samples of profiles that wait to be exported, or are being so.",
        _SDK_COMPONENT,
    ),
}
"""By OpenTelemetry's conventions for SDKs, which have none for profiles."""
PROCESS_CPU_TIME = MetricSpec("process.cpu.time", "s", _COUNTER, "CPU time of the agent.", ("cpu.mode",), floating=True)
PROCESS_MEMORY_USAGE = MetricSpec("process.memory.usage", "By", _UPDOWN, "Resident memory of the agent.")

SPECS = (
    *(value for value in tuple(vars().values()) if isinstance(value, MetricSpec)),
    *EXPORTED.values(),
    *INFLIGHT.values(),
)
"""All of them."""

ATTRIBUTES = (
    AttributeSpec("bpf.map.name", "The BPF map."),
    AttributeSpec(
        "otel_gpu.component",
        "A part of the agent: a receiver (`cuda`, `nvml`, `self`), `processors`, `series`, `profiles`, `traces`, `export NAME`, or a thread "
        "(`collect`, `events`, `samples`, `nvml`, `xid`, `health_check`).",
    ),
    AttributeSpec("cpu.mode", "Where the CPU time was spent.", ("user", "system")),
    AttributeSpec("otel_gpu.event", "What was lost."),
    AttributeSpec("otel.component.name", "The exporter, as the configuration calls it, or the reader of metrics."),
    AttributeSpec(
        "otel.component.type", "What kind of exporter or reader it is, as the conventions call those that they know."
    ),
    AttributeSpec(
        "otel_gpu.state",
        "Whether the probe is in place, or the stack whole, or a kernel's name still looked for (`pending`) or not found "
        "(`unknown`).",
        ("attached", "failed", "skipped", "complete", "truncated", "pending", "unknown"),
    ),
)
