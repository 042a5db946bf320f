"""What is counted of HIP? Parallel to what is counted of CUDA, under names of its own."""

from __future__ import annotations

from ...signals.metrics import Instrument, MetricSpec

_COUNTER, _HISTOGRAM, _UPDOWN = Instrument.COUNTER, Instrument.HISTOGRAM, Instrument.UPDOWNCOUNTER
_DEVICE = ("hip.device.index", "hip.device.uuid")

KERNEL_LAUNCH_CALLS = MetricSpec(
    "gpu.hip.kernel.launch.calls",
    "{call}",
    _COUNTER,
    "Kernel launches, those recorded by a capture left out.",
    (*_DEVICE, "hip.kernel.name"),
)
KERNEL_GRID_SIZE = MetricSpec(
    "gpu.hip.kernel.grid.size",
    "1",
    _HISTOGRAM,
    "Blocks in the grid of a launch.",
    (*_DEVICE, "hip.kernel.name"),
)
KERNEL_BLOCK_SIZE = MetricSpec(
    "gpu.hip.kernel.block.size",
    "1",
    _HISTOGRAM,
    "Threads in one block of a launch.",
    (*_DEVICE, "hip.kernel.name"),
)
GRAPH_LAUNCH_CALLS = MetricSpec("gpu.hip.graph.launch.calls", "{call}", _COUNTER, "HIP graph launches.", _DEVICE)
GRAPH_KERNEL_CALLS = MetricSpec(
    "gpu.hip.graph.kernel.calls",
    "{call}",
    _COUNTER,
    "Kernels executed by graph launches.",
    (*_DEVICE, "hip.kernel.name"),
)
GRAPH_MEMORY_COPIES = MetricSpec(
    "gpu.hip.graph.memory.copies",
    "By",
    _HISTOGRAM,
    "Bytes of each copy executed by graph launches.",
    ("hip.memcpy.kind", "hip.memory.host.type", "hip.device.index", "hip.device.uuid"),
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
    ("hip.memcpy.kind", "hip.memory.host.type", "hip.device.index", "hip.device.uuid"),
)
MEMORY_ALLOCATIONS = MetricSpec(
    "gpu.hip.memory.allocations",
    "By",
    _COUNTER,
    "Bytes allocated.",
    ("hip.memory.type", "hip.device.index", "hip.device.uuid"),
)
MEMORY_FREE_BYTES = MetricSpec(
    "gpu.hip.memory.free.bytes",
    "By",
    _COUNTER,
    "Bytes freed by calls; what ends with its context is no longer in use, without a free.",
    ("hip.memory.type", "hip.device.index", "hip.device.uuid"),
)
MEMORY_UNKNOWN_FREES = MetricSpec(
    "gpu.hip.memory.unmatched.frees",
    "{call}",
    _COUNTER,
    "Frees of memory that was allocated before the probes were there, and addresses given out again without a free.",
    ("reason",),
)
MEMSET_BYTES = MetricSpec(
    "gpu.hip.memset.bytes",
    "By",
    _COUNTER,
    "Bytes filled by memset calls.",
    ("hip.memory.type", "hip.device.index", "hip.device.uuid"),
)
MEMORY_USAGE = MetricSpec(
    "gpu.hip.memory.usage",
    "By",
    _UPDOWN,
    "Bytes allocated now, by what was seen.",
    ("hip.memory.type", "hip.device.index", "hip.device.uuid"),
)
SYNCHRONIZE_DURATION = MetricSpec(
    "gpu.hip.synchronize.duration",
    "s",
    _HISTOGRAM,
    "How long the host waited in a blocking call.",
    ("hip.function", "hip.device.index", "hip.device.uuid"),
    floating=True,
)
ERRORS = MetricSpec(
    "gpu.hip.errors",
    "{error}",
    _COUNTER,
    "Calls that returned an error. Launches, memsets and asynchronous copies are counted as they are asked for: what becomes of them is not seen.",
    ("hip.function", "error.type"),
)

SPECS = (
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
    SYNCHRONIZE_DURATION,
    ERRORS,
)
