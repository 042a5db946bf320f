"""What does the agent measure of itself, and by which attributes?"""

from __future__ import annotations

from .metrics import Instrument, MetricSpec
from .telemetry import AttributeSpec

_COUNTER, _UPDOWN, _GAUGE, _HISTOGRAM = (
    Instrument.COUNTER,
    Instrument.UPDOWNCOUNTER,
    Instrument.GAUGE,
    Instrument.HISTOGRAM,
)

EVENTS_LOST = MetricSpec(
    "otel_gpu.events.lost", "{event}", _COUNTER, "What could not be counted in full: overflow and drops.", ("event",)
)
PROCESS_EVENTS_LOST = MetricSpec(
    "otel_gpu.process.events.lost",
    "{event}",
    _COUNTER,
    "The same of one process, on its own resource: what it did beyond its share of a table, or of the ring buffers, and "
    "what it said that could not be read.",
    ("event", "bpf.map.name"),
)
MAP_ENTRIES = MetricSpec("otel_gpu.map.entries", "{entry}", _GAUGE, "Entries in a BPF map.", ("bpf.map.name",))
MAP_CAPACITY = MetricSpec("otel_gpu.map.capacity", "{entry}", _GAUGE, "Entries a BPF map can hold.", ("bpf.map.name",))
PROBES = MetricSpec("otel_gpu.probes", "{probe}", _GAUGE, "Probes by state.", ("error.type", "state"))
STACKS = MetricSpec("otel_gpu.stacks", "{stack}", _COUNTER, "Stacks taken for profiles.", ("reason", "state"))
KERNELS_UNNAMED = MetricSpec(
    "otel_gpu.kernels.unnamed",
    "{kernel}",
    _GAUGE,
    "Kernels that observed programs launch and that have no name. Counts of those whose name is looked for are held back; "
    "those whose name is not found are shown by the file that launches them and their handle.",
    ("state",),
)
RESOURCE_ATTRIBUTES_CUT = MetricSpec(
    "otel_gpu.resource.attributes.cut",
    "{attribute}",
    _COUNTER,
    "Attributes that observed programs say of themselves and that are left out or shortened.",
    ("reason",),
)
PROCESSES_UNREAD = MetricSpec(
    "otel_gpu.processes.unread",
    "{process}",
    _COUNTER,
    "Observed programs whose command line or environment could not be read, so that their resource goes without.",
    ("reason",),
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
COMPONENT_HEALTH = MetricSpec(
    "otel_gpu.component.health",
    "1",
    _GAUGE,
    "Whether a part of the agent does its work: 1, or 0 while it fails, hangs or has ended.",
    ("component",),
)
COMPONENT_FAILURES = MetricSpec(
    "otel_gpu.component.failures",
    "{failure}",
    _COUNTER,
    "How often the work of a part of the agent, or a piece of it, failed unexpectedly; the part goes on.",
    ("component",),
)
COLLECT_DURATION = MetricSpec(
    "otel_gpu.collect.duration", "s", _HISTOGRAM, "Time to read the kernel's maps once.", floating=True
)
EXPORT_DURATION = MetricSpec(
    "otel_gpu.export.duration",
    "s",
    _HISTOGRAM,
    "Time to hand one interval to an exporter.",
    ("otel.component.name",),
    floating=True,
)
EXPORT_POINTS = MetricSpec(
    "otel_gpu.export.points",
    "{point}",
    _COUNTER,
    "Data points, samples and spans by what became of them.",
    ("otel.component.name", "outcome"),
)
PROCESS_CPU_TIME = MetricSpec("process.cpu.time", "s", _COUNTER, "CPU time of the agent.", ("cpu.mode",), floating=True)
PROCESS_MEMORY_USAGE = MetricSpec("process.memory.usage", "By", _UPDOWN, "Resident memory of the agent.")

SPECS = tuple(value for value in tuple(vars().values()) if isinstance(value, MetricSpec))
"""All of them, in the order in which they stand here."""

ATTRIBUTES = (
    AttributeSpec("bpf.map.name", "The BPF map."),
    AttributeSpec(
        "component",
        "A part of the agent: a receiver (`cuda`, `nvml`, `self`), `processors`, `series`, `profiles`, `traces`, `export NAME`, or a thread "
        "(`collect`, `events`, `samples`, `nvml`, `xid`, `health_check`).",
    ),
    AttributeSpec("cpu.mode", "Where the CPU time was spent.", ("user", "system")),
    AttributeSpec("event", "What was lost."),
    AttributeSpec("otel.component.name", "The exporter, as the configuration calls it."),
    AttributeSpec("outcome", "What became of the points.", ("sent", "rejected", "failed", "dropped")),
    AttributeSpec(
        "state",
        "Whether the probe is in place, or the stack whole, or a kernel's name still looked for (`pending`) or not found "
        "(`unknown`).",
        ("attached", "failed", "skipped", "complete", "truncated", "pending", "unknown"),
    ),
)
