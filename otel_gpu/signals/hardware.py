"""What does the GPU's management library tell of hardware, and by which attributes? By semconv's `hw.*` names.

What the semantic conventions have no name for (clocks, throttling, per-process shares) is `gpu.nvml.*`, and otherwise named as they
would: `gpu.nvml.speed` as `hw.cpu.speed`, `.limit` for what must not be exceeded.
"""

from __future__ import annotations

from .metrics import Instrument, MetricSpec
from .telemetry import AttributeSpec

_COUNTER, _LEVEL, _GAUGE = Instrument.COUNTER, Instrument.UPDOWNCOUNTER, Instrument.GAUGE
_GPU = ("hw.driver_version", "hw.id", "hw.model", "hw.name", "hw.parent", "hw.serial_number", "hw.vendor")
_COMPONENT = (*_GPU, "hw.type")
CLOCK_EVENTS = (
    "idle",
    "applications_clocks",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "hw_power_brake",
    "display_clocks",
)
"""Why clocks are down: nvmlClocksEventReasons, bit by bit."""

UTILIZATION = MetricSpec(
    "hw.gpu.utilization",
    "1",
    _GAUGE,
    "Share of the last sampling period in which any kernel ran, or in which the encoder or decoder worked.",
    (*_GPU, "hw.gpu.task"),
    floating=True,
)
MEMORY_LIMIT = MetricSpec("hw.gpu.memory.limit", "By", _LEVEL, "Size of the memory.", _GPU)
MEMORY_USAGE = MetricSpec(
    "hw.gpu.memory.usage",
    "By",
    _LEVEL,
    "Memory in use by every process and the driver, reserved memory left out.",
    _GPU,
)
MEMORY_UTILIZATION = MetricSpec(
    "hw.gpu.memory.utilization", "1", _GAUGE, "Share of the memory in use.", _GPU, floating=True
)
IO = MetricSpec(
    "hw.gpu.io",
    "By",
    _COUNTER,
    "Bytes over PCIe, and over all NVLinks together, as the GPU counts them.",
    (*_GPU, "gpu.nvml.link", "network.io.direction"),
)
IO_RATE = MetricSpec(
    "gpu.nvml.io.rate",
    "By/s",
    _GAUGE,
    "PCIe throughput sampled over 20 ms, where the GPU has no byte counters.",
    (*_GPU, "gpu.nvml.link", "network.io.direction"),
)
SPEED = MetricSpec("gpu.nvml.speed", "Hz", _GAUGE, "Clock frequency.", (*_GPU, "gpu.nvml.clock"))
SPEED_LIMIT = MetricSpec("gpu.nvml.speed.limit", "Hz", _GAUGE, "Highest clock frequency.", (*_GPU, "gpu.nvml.clock"))
THROTTLED = MetricSpec(
    "gpu.nvml.throttle.active",
    "{gpu}",
    _GAUGE,
    "1 while the clocks are held below their maximum for this reason, else 0.",
    (*_GPU, "gpu.nvml.throttle.reason"),
)
THROTTLE_TIME = MetricSpec(
    "gpu.nvml.throttle.time",
    "s",
    _COUNTER,
    "Time for which the clocks were held down for this reason.",
    (*_GPU, "gpu.nvml.throttle.reason"),
    floating=True,
)
TEMPERATURE = MetricSpec("hw.temperature", "Cel", _GAUGE, "Temperature of the GPU's die.", _COMPONENT)
TEMPERATURE_LIMIT = MetricSpec(
    "hw.temperature.limit",
    "Cel",
    _GAUGE,
    "Temperature at which the GPU slows down (`high.degraded`) or shuts off (`high.critical`).",
    (*_COMPONENT, "hw.limit_type"),
)
POWER = MetricSpec("hw.power", "W", _GAUGE, "Power draw.", _COMPONENT, floating=True)
POWER_LIMIT = MetricSpec("gpu.nvml.power.limit", "W", _GAUGE, "Power draw that is enforced.", _GPU, floating=True)
ENERGY = MetricSpec(
    "hw.energy", "J", _COUNTER, "Energy used since the agent started.", _COMPONENT, floating=True
)  # fmt: skip
ERRORS = MetricSpec(
    "hw.errors",
    "{error}",
    _COUNTER,
    "Memory errors by ECC, PCIe replays and XID events since the agent started.",
    (*_COMPONENT, "error.type", "gpu.nvml.memory.location", "gpu.nvml.xid"),
)
STATUS = MetricSpec(
    "hw.status",
    "1",
    _LEVEL,
    "1 for the state that the GPU is in: `failed` has fallen off the bus, `degraded` has memory rows that wait for a "
    "reset or cannot be remapped.",
    (*_COMPONENT, "hw.state"),
)
PROCESS_MEMORY = MetricSpec(
    "gpu.nvml.process.memory.usage", "By", _LEVEL, "GPU memory that the driver holds for this process.", ("hw.id",)
)
PROCESS_UTILIZATION = MetricSpec(
    "gpu.nvml.process.utilization",
    "1",
    _GAUGE,
    "Share of the time in which this process had a kernel on the GPU.",
    ("hw.id",),
    floating=True,
)

SPECS = (
    UTILIZATION,
    MEMORY_LIMIT,
    MEMORY_USAGE,
    MEMORY_UTILIZATION,
    IO,
    IO_RATE,
    SPEED,
    SPEED_LIMIT,
    THROTTLED,
    THROTTLE_TIME,
    TEMPERATURE,
    TEMPERATURE_LIMIT,
    POWER,
    POWER_LIMIT,
    ENERGY,
    ERRORS,
    STATUS,
    PROCESS_MEMORY,
    PROCESS_UTILIZATION,
)
"""All of them."""

ATTRIBUTES = (
    AttributeSpec("hw.driver_version", "Version of NVIDIA's driver."),
    AttributeSpec("gpu.nvml.clock", "Which clock.", ("graphics", "sm", "memory", "video")),
    AttributeSpec("gpu.nvml.link", "Over which link.", ("pcie", "nvlink")),
    AttributeSpec("gpu.nvml.memory.location", "Where ECC found the error.", ("dram", "sram")),
    AttributeSpec("hw.gpu.task", "Which part of the GPU.", ("general", "encoder", "decoder")),
    AttributeSpec(
        "gpu.nvml.throttle.reason",
        "Why the clocks are down.",
        (
            *CLOCK_EVENTS,
            "power",
            "thermal",
            "board_limit",
            "low_utilization",
            "reliability",
        ),
    ),
    AttributeSpec("gpu.nvml.xid", "Number of the XID event, as NVIDIA's list of XIDs has it."),
    AttributeSpec(
        "hw.id", "UUID of the GPU, as DCGM writes it: `GPU-…`, or `MIG-…` for an instance of a partitioned GPU."
    ),
    AttributeSpec("hw.limit_type", "Which limit.", ("high.degraded", "high.critical")),
    AttributeSpec("hw.model", "Product name."),
    AttributeSpec("hw.name", "Device file's name (`nvidia0`), or the instance's place in it."),
    AttributeSpec("hw.parent", "`hw.id` of the GPU that a MIG instance is part of."),
    AttributeSpec("hw.serial_number", "Serial number of the board."),
    AttributeSpec("hw.state", "State of the component.", ("ok", "degraded", "failed")),
    AttributeSpec("hw.type", "Kind of hardware: `gpu`.", ("gpu",)),
    AttributeSpec("hw.vendor", "Maker: `NVIDIA`.", ("NVIDIA",)),
    AttributeSpec("network.io.direction", "From the GPU's side; of RDMA from the host's.", ("transmit", "receive")),
)
