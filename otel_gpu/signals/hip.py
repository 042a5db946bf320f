"""What is measured of HIP, and by which attributes? Parallel to what is measured of CUDA, under names of its own."""

from __future__ import annotations

from .metrics import Instrument, MetricSpec
from .telemetry import COPY_KINDS, HOST_MEMORIES, MEMORY_TYPES, AttributeSpec

_COUNTER, _HISTOGRAM, _UPDOWN = Instrument.COUNTER, Instrument.HISTOGRAM, Instrument.UPDOWNCOUNTER

DEVICE_INDEX, DEVICE_UUID = "hip.device.index", "hip.device.uuid"
FUNCTION = "hip.function"
KERNEL_NAME = "hip.kernel.name"
COPY_KIND, HOST_MEMORY, MEMORY_TYPE = "hip.memcpy.kind", "hip.memory.host.type", "hip.memory.type"
_DEVICE = (DEVICE_INDEX, DEVICE_UUID, "hw.id")

KERNEL_LAUNCH_CALLS = MetricSpec(
    "gpu.hip.kernel.launch.calls",
    "{call}",
    _COUNTER,
    "Kernel launches, those recorded by a capture left out.",
    (*_DEVICE, KERNEL_NAME),
)
KERNEL_GRID_SIZE = MetricSpec(
    "gpu.hip.kernel.grid.size",
    "{block}",
    _HISTOGRAM,
    "Blocks in the grid of a launch.",
    (*_DEVICE, KERNEL_NAME),
)
KERNEL_BLOCK_SIZE = MetricSpec(
    "gpu.hip.kernel.block.size",
    "{thread}",
    _HISTOGRAM,
    "Threads in one block of a launch.",
    (*_DEVICE, KERNEL_NAME),
)
GRAPH_LAUNCH_CALLS = MetricSpec("gpu.hip.graph.launch.calls", "{call}", _COUNTER, "HIP graph launches.", _DEVICE)
GRAPH_KERNEL_CALLS = MetricSpec(
    "gpu.hip.graph.kernel.calls",
    "{call}",
    _COUNTER,
    "Kernels executed by graph launches.",
    (*_DEVICE, KERNEL_NAME),
)
GRAPH_MEMORY_COPIES = MetricSpec(
    "gpu.hip.graph.memory.copies",
    "By",
    _HISTOGRAM,
    "Bytes of each copy executed by graph launches.",
    (COPY_KIND, HOST_MEMORY, *_DEVICE),
)
GRAPH_MEMSET_BYTES = MetricSpec(
    "gpu.hip.graph.memset.bytes",
    "By",
    _COUNTER,
    "Bytes filled by memsets of graph launches.",
    _DEVICE,
)
MEMORY_COPIES = MetricSpec(
    "gpu.hip.memory.copies",
    "By",
    _HISTOGRAM,
    "Bytes of each copy; the histogram's sum is the exact byte count.",
    (COPY_KIND, HOST_MEMORY, *_DEVICE),
)
MEMORY_ALLOCATIONS = MetricSpec(
    "gpu.hip.memory.allocations",
    "By",
    _COUNTER,
    "Bytes allocated.",
    (MEMORY_TYPE, *_DEVICE),
)
MEMORY_FREE_BYTES = MetricSpec(
    "gpu.hip.memory.free.bytes",
    "By",
    _COUNTER,
    "Bytes freed by calls; what ends with its context is no longer in use, without a free.",
    (MEMORY_TYPE, *_DEVICE),
)
MEMORY_UNKNOWN_FREES = MetricSpec(
    "gpu.hip.memory.unmatched.frees",
    "{call}",
    _COUNTER,
    "Frees of memory that was allocated before the probes were there, and addresses given out again without a free.",
    ("otel_gpu.reason",),
)
MEMSET_BYTES = MetricSpec(
    "gpu.hip.memset.bytes",
    "By",
    _COUNTER,
    "Bytes filled by memset calls.",
    (MEMORY_TYPE, *_DEVICE),
)
MEMORY_USAGE = MetricSpec(
    "gpu.hip.memory.usage",
    "By",
    _UPDOWN,
    "Bytes allocated now, by what was seen.",
    (MEMORY_TYPE, *_DEVICE),
)
SYNCHRONIZE_DURATION = MetricSpec(
    "gpu.hip.synchronize.duration",
    "s",
    _HISTOGRAM,
    "How long the host waited in a blocking call.",
    (FUNCTION, *_DEVICE),
    floating=True,
)
ERRORS = MetricSpec(
    "gpu.hip.errors",
    "{error}",
    _COUNTER,
    "Calls that returned an error. Launches, memsets and asynchronous copies are counted as they are asked for: what becomes of them is not seen.",
    (FUNCTION, "error.type"),
)

SPECS = tuple(value for value in tuple(vars().values()) if isinstance(value, MetricSpec))
"""All of them, in the order in which they stand here."""

ATTRIBUTES = (
    AttributeSpec(DEVICE_INDEX, "The device's ordinal in the observed process."),
    AttributeSpec(
        DEVICE_UUID, "The device's UUID, without the leading `GPU-`; where the process has queues on that GPU."
    ),
    AttributeSpec(FUNCTION, "The function of HIP that was called; of pairs that call each other, the inner."),
    AttributeSpec(KERNEL_NAME, "The kernel; `other` for those outside the top K."),
    AttributeSpec(COPY_KIND, "From where to where, as `cuda.memcpy.kind`.", COPY_KINDS),
    AttributeSpec(HOST_MEMORY, "What the host's side of the copy is.", HOST_MEMORIES),
    AttributeSpec(MEMORY_TYPE, "As `cuda.memory.type`; `virtual` from hipMemCreate.", MEMORY_TYPES),
)
