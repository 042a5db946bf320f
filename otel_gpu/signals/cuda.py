"""What is counted of CUDA, and by which attributes? OBI's names, where it has them."""

from __future__ import annotations

from .metrics import Instrument, MetricSpec
from .telemetry import COPY_KINDS, HOST_MEMORIES, MEMORY_TYPES, AttributeSpec

_COUNTER, _UPDOWN, _GAUGE, _HISTOGRAM = (
    Instrument.COUNTER,
    Instrument.UPDOWNCOUNTER,
    Instrument.GAUGE,
    Instrument.HISTOGRAM,
)
_DEVICE = ("cuda.device.index", "cuda.device.model", "cuda.device.uuid", "hw.id")
_KERNEL = (*_DEVICE, "cuda.kernel.name")

KERNEL_LAUNCH_CALLS = MetricSpec(
    "gpu.cuda.kernel.launch.calls",
    "{call}",
    _COUNTER,
    "Kernel launches, those recorded by a capture left out.",
    _KERNEL,
)
KERNEL_GRID_SIZE = MetricSpec(
    "gpu.cuda.kernel.grid.size", "{block}", _HISTOGRAM, "Blocks in the grid of a launch.", _KERNEL
)
KERNEL_BLOCK_SIZE = MetricSpec(
    "gpu.cuda.kernel.block.size", "{thread}", _HISTOGRAM, "Threads in one block of a launch.", _KERNEL
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
    ("otel_gpu.reason",),
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
    ("otel_gpu.bound", *_DEVICE),
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

SPECS = tuple(value for value in tuple(vars().values()) if isinstance(value, MetricSpec))
"""All of them, in the order in which they stand here."""

ATTRIBUTES = (
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
    AttributeSpec("otel_gpu.bound", "Which side of the true value this is.", ("lower", "upper")),
)
