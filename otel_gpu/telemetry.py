"""What can otel-gpu emit? Every metric, span and attribute, declared once.

Receivers take their `MetricSpec` from here and nowhere else; `docs/telemetry.md` is what `render()`
returns (`make docs`), and a test fails when the two differ. Names are OBI's (`gpu.cuda.*`) and the
semantic conventions' where they have one, units are UCUM, and no unit stands in a name.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import registry, telemetry_spans
from .errors import ConfigError
from .receivers.inference import metrics as inference_metrics
from .receivers.nccl import metrics as nccl_metrics
from .receivers.nvml import metrics as nvml_metrics
from .receivers.rdma import metrics as rdma_metrics
from .signals import hip
from .signals.metrics import Instrument, MetricSpec
from .signals.profiles import CHOICES
from .signals.telemetry import COPY_KINDS, HOST_MEMORIES, MEMORY_TYPES, AttributeSpec

if TYPE_CHECKING:
    from .components import ReceiverFactory


_log = logging.getLogger(__name__)

ATTRIBUTES: dict[str, AttributeSpec] = {
    a.name: a
    for a in (
        *telemetry_spans.ATTRIBUTES,
        *(AttributeSpec(*declared) for declared in nvml_metrics.ATTRIBUTES),
        *hip.ATTRIBUTES,
        *inference_metrics.ATTRIBUTES,
        *rdma_metrics.ATTRIBUTES,
        *nccl_metrics.ATTRIBUTES,
        AttributeSpec("bound", "Which side of the true value this is.", ("lower", "upper")),
        AttributeSpec("bpf.map.name", "The BPF map."),
        AttributeSpec(
            "component",
            "A part of the agent: a receiver (`cuda`, `nvml`, `self`), `processors`, `series`, `profiles`, `traces`, `export NAME`, or a thread "
            "(`collect`, `events`, `samples`, `nvml`, `xid`, `health_check`).",
        ),
        AttributeSpec("cpu.mode", "Where the CPU time was spent.", ("user", "system")),
        AttributeSpec("cuda.device.index", "The device's ordinal in the observed process."),
        AttributeSpec("cuda.device.model", "The device's product name."),
        AttributeSpec("cuda.device.uuid", "The device's UUID, without the leading `GPU-`."),
        AttributeSpec("cuda.function", "The driver function that was called."),
        AttributeSpec("cuda.kernel.name", "The kernel; `other` for those outside the top K."),
        AttributeSpec(
            "cuda.memcpy.kind",
            "From where to where.",
            COPY_KINDS,
        ),
        AttributeSpec("cuda.memory.host.type", "What the host's side of the copy is.", HOST_MEMORIES),
        AttributeSpec(
            "cuda.memory.type",
            "`host` is page-locked, `async` comes from stream-ordered pools, `virtual` from cuMemCreate.",
            MEMORY_TYPES,
        ),
        AttributeSpec(
            "error.type",
            "Why it failed: the CUDA or HIP error code's name, or the class of the failure; of hardware `corrected`, "
            "`uncorrected`, `pcie_replay` or `xid`; of a request its status, or how the connection ended.",
        ),
        AttributeSpec("event", "What was lost."),
        AttributeSpec("otel.component.name", "The exporter, as the configuration calls it."),
        AttributeSpec("outcome", "What became of the points.", ("sent", "rejected", "failed", "dropped")),
        AttributeSpec(
            "reason",
            "Why a free had no allocation (`allocated_before`, `implicit`, `untracked`), why a stack was cut short, why an "
            "attribute was (`reserved`, `malformed`, `too_many`, `shortened`), or why a program could not be looked at "
            "(`ended`, `not_permitted`, `no_answer`, `too_many`).",
        ),
        AttributeSpec(
            "state",
            "Whether the probe is in place, or the stack whole, or a kernel's name still looked for (`pending`) or not found "
            "(`unknown`).",
            ("attached", "failed", "skipped", "complete", "truncated", "pending", "unknown"),
        ),
    )
}

_COUNTER, _UPDOWN, _GAUGE, _HISTOGRAM = (
    Instrument.COUNTER,
    Instrument.UPDOWNCOUNTER,
    Instrument.GAUGE,
    Instrument.HISTOGRAM,
)
_DEVICE = ("cuda.device.index", "cuda.device.model", "cuda.device.uuid")
_KERNEL = (*_DEVICE, "cuda.kernel.name")

KERNEL_LAUNCH_CALLS = MetricSpec(
    "gpu.cuda.kernel.launch.calls",
    "{call}",
    _COUNTER,
    "Kernel launches, those recorded by a capture left out.",
    _KERNEL,
)
KERNEL_GRID_SIZE = MetricSpec("gpu.cuda.kernel.grid.size", "1", _HISTOGRAM, "Blocks in the grid of a launch.", _KERNEL)
KERNEL_BLOCK_SIZE = MetricSpec(
    "gpu.cuda.kernel.block.size", "1", _HISTOGRAM, "Threads in one block of a launch.", _KERNEL
)
GRAPH_LAUNCH_CALLS = MetricSpec("gpu.cuda.graph.launch.calls", "{call}", _COUNTER, "CUDA graph launches.", _DEVICE)
GRAPH_KERNEL_CALLS = MetricSpec(
    "gpu.cuda.graph.kernel.calls", "{call}", _COUNTER, "Kernels executed by graph launches.", _KERNEL
)
GRAPH_MEMORY_COPIES = MetricSpec(
    "gpu.cuda.graph.memory.copies",
    "By",
    _HISTOGRAM,
    "Bytes of each copy executed by graph launches.",
    ("cuda.memcpy.kind", "cuda.memory.host.type", *_DEVICE),
)
GRAPH_MEMSET_BYTES = MetricSpec(
    "gpu.cuda.graph.memset.bytes", "By", _COUNTER, "Bytes filled by memsets of graph launches.", _DEVICE
)
MEMORY_COPIES = MetricSpec(
    "gpu.cuda.memory.copies",
    "By",
    _HISTOGRAM,
    "Bytes of each copy; the histogram's sum is the exact byte count.",
    ("cuda.memcpy.kind", "cuda.memory.host.type", *_DEVICE),
)
MEMORY_ALLOCATIONS = MetricSpec(
    "gpu.cuda.memory.allocations", "By", _COUNTER, "Bytes allocated.", ("cuda.memory.type", *_DEVICE)
)
MEMORY_FREE_BYTES = MetricSpec(
    "gpu.cuda.memory.free.bytes",
    "By",
    _COUNTER,
    "Bytes freed by calls; what ends with its context is no longer in use, without a free.",
    ("cuda.memory.type", *_DEVICE),
)
MEMORY_UNKNOWN_FREES = MetricSpec(
    "gpu.cuda.memory.unmatched.frees",
    "{call}",
    _COUNTER,
    "Frees of memory that was allocated before the probes were there, and addresses given out again without a free.",
    ("reason",),
)
MEMSET_BYTES = MetricSpec(
    "gpu.cuda.memset.bytes", "By", _COUNTER, "Bytes filled by memset calls.", ("cuda.memory.type", *_DEVICE)
)
MEMORY_USAGE = MetricSpec(
    "gpu.cuda.memory.usage", "By", _UPDOWN, "Bytes allocated now, by what was seen.", ("cuda.memory.type", *_DEVICE)
)
MEMORY_UNTRACKED = MetricSpec(
    "gpu.cuda.memory.untracked",
    "By",
    _GAUGE,
    "What the driver says the process uses, less the device, async and virtual memory that was seen being allocated: "
    "contexts, reserves, managed memory on the GPU, and what was there before the agent.",
    _DEVICE,
)
HARDWARE_PROCESS_MEMORY = nvml_metrics.PROCESS_MEMORY
SYNCHRONIZE_DURATION = MetricSpec(
    "gpu.cuda.synchronize.duration",
    "s",
    _HISTOGRAM,
    "How long the host waited in a blocking call.",
    ("cuda.function", *_DEVICE),
    floating=True,
)
BUSY_TIME = MetricSpec(
    "gpu.cuda.busy.time",
    "s",
    _COUNTER,
    "Bounds of the time during which the device executed anything the process had submitted since it was observed, "
    "however many streams at once. Between submissions and what tells of their end the truth lies: `upper` is all time "
    "but certain gaps, `lower` is time in which unfinished work was seen. It takes the device for the process's own: "
    "work that waits for another process's counts as busy.",
    ("bound", *_DEVICE),
    floating=True,
)
IDLE_DURATION = MetricSpec(
    "gpu.cuda.idle.duration",
    "s",
    _HISTOGRAM,
    "Gaps between batches of work: from the call that told of the end of all of it to the next submission. The device "
    "was idle for at least that long.",
    _DEVICE,
    floating=True,
)
EVENT_ELAPSED_TIME = MetricSpec(
    "gpu.cuda.event.elapsed.time",
    "s",
    _HISTOGRAM,
    "Time between two events on the device, as the driver measured it when the program asked.",
    _DEVICE,
    floating=True,
)
ERRORS = MetricSpec(
    "gpu.cuda.errors",
    "{error}",
    _COUNTER,
    "Driver calls that returned an error. Launches, memsets and asynchronous copies are counted as they are asked for: "
    "what becomes of them is not seen.",
    ("cuda.function", "error.type"),
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

GROUPS: dict[str, tuple[MetricSpec, ...]] = {
    "CUDA": (
        KERNEL_LAUNCH_CALLS,
        KERNEL_GRID_SIZE,
        KERNEL_BLOCK_SIZE,
        GRAPH_LAUNCH_CALLS,
        GRAPH_KERNEL_CALLS,
        GRAPH_MEMORY_COPIES,
        GRAPH_MEMSET_BYTES,
        MEMORY_COPIES,
        MEMORY_ALLOCATIONS,
        MEMORY_FREE_BYTES,
        MEMORY_UNKNOWN_FREES,
        MEMSET_BYTES,
        MEMORY_USAGE,
        MEMORY_UNTRACKED,
        SYNCHRONIZE_DURATION,
        BUSY_TIME,
        IDLE_DURATION,
        EVENT_ELAPSED_TIME,
        ERRORS,
    ),
    "HIP": hip.SPECS,
    "Requests": inference_metrics.SPECS,
    "NCCL": nccl_metrics.SPECS,
    "Hardware": nvml_metrics.SPECS,
    "RDMA": rdma_metrics.SPECS,
    "The agent itself": (
        EVENTS_LOST,
        PROCESS_EVENTS_LOST,
        MAP_ENTRIES,
        MAP_CAPACITY,
        PROBES,
        STACKS,
        KERNELS_UNNAMED,
        RESOURCE_ATTRIBUTES_CUT,
        PROCESSES_UNREAD,
        SERIES_OVERFLOW,
        COLLECT_DURATION,
        EXPORT_DURATION,
        EXPORT_POINTS,
        ATTACH_DELAY,
        COMPONENT_HEALTH,
        COMPONENT_FAILURES,
        PROCESS_CPU_TIME,
        PROCESS_MEMORY_USAGE,
    ),
}
"""The registry, in the order in which the document shows it."""

ALL: dict[str, MetricSpec] = {spec.name: spec for group in GROUPS.values() for spec in group}
"""Every metric by its name."""


def installed() -> dict[str, ReceiverFactory]:
    """Return the receivers that other packages have installed, by type: those that can be imported."""
    found = {}
    for name in registry.names("receivers"):
        try:
            factory = registry.find("receivers", name)
        except ConfigError as e:
            _log.warning("%s", e)
            continue
        if factory is not None:
            found[name] = factory
    return found


def render(others: Mapping[str, ReceiverFactory] = {}) -> str:
    """Return docs/telemetry.md, with what the receivers of other packages measure behind it."""
    lines = [
        "# Telemetry",
        "",
        "Everything otel-gpu emits. Generated from `otel_gpu/telemetry.py` by `make docs`; do not edit.",
        "",
        "Every series carries the resource of the process it is about: `service.name`, `process.*`, `container.id`,",
        "`k8s.*`, `host.*`. Sums are cumulative unless `temporality: delta` is asked for; histograms are exponential, at",
        "scale 0.",
    ]
    groups = {**GROUPS, **{f"`{name}`": factory.metrics for name, factory in others.items()}}
    for title, specs in groups.items():
        lines += ["", f"## {title}", "", "| metric | instrument | unit | attributes | stability | what it says |"]
        lines += ["|---|---|---|---|---|---|"]
        lines += [
            f"| `{s.name}` | {s.instrument.value} | `{s.unit}` | {_names(s.attributes)} | {s.stability} "
            f"| {s.description} |"
            for s in specs
        ]
    lines += ["", "## Profiles", "", "One OTLP profile a process, type and interval; `otel-gpu run --profiles`, or"]
    lines += ["`otel-gpu record --type` for one.", ""]
    lines += ["| profile | unit | asked for as | stability | what it says |", "|---|---|---|---|---|"]
    lines += [
        f"| `{t.name}` | `{t.unit}` | `{choice}` | {t.stability} | {t.title}: {t.description} |"
        for choice, types in CHOICES.items()
        for t in types
    ]
    lines += [
        "",
        "## Spans",
        "",
        "With a `traces` pipeline. What the GPU did stands on them as totals: exact, or left out,",
    ]
    lines += ["as may be what is zero. Times are of the wall clock.", ""]
    lines += ["| span | kind | attributes | stability | what it says |", "|---|---|---|---|---|"]
    lines += [
        f"| `{s.name}` | {s.kind.name} | {_names(s.attributes)} | {s.stability} | {s.description} |"
        for s in (*telemetry_spans.SPANS, *(spec for factory in others.values() for spec in factory.spans))
    ]
    known = {**ATTRIBUTES, **{a.name: a for f in others.values() for a in f.attributes}}
    lines += ["", "## Attributes", "", "| attribute | what it says | values |", "|---|---|---|"]
    lines += [f"| `{a.name}` | {a.description} | {_names(a.values)} |" for _, a in sorted(known.items())]
    return "\n".join(lines) + "\n"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{n}`" for n in names)


if __name__ == "__main__":
    sys.stdout.write(render(installed()))
