"""What does the GPU's management library tell of hardware, and by which attributes? By semconv's `hw.*` names.

Where the semantic conventions have no name (clocks, throttling, per-process shares) the nearest of theirs is followed:
`hw.gpu.speed` as `hw.cpu.speed`, `.limit` for what must not be exceeded.
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
    (*_GPU, "hw.gpu.link", "network.io.direction"),
)
IO_RATE = MetricSpec(
    "hw.gpu.io.rate",
    "By/s",
    _GAUGE,
    "PCIe throughput sampled over 20 ms, where the GPU has no byte counters.",
    (*_GPU, "hw.gpu.link", "network.io.direction"),
)
SPEED = MetricSpec("hw.gpu.speed", "Hz", _GAUGE, "Clock frequency.", (*_GPU, "hw.gpu.clock"))
SPEED_LIMIT = MetricSpec("hw.gpu.speed.limit", "Hz", _GAUGE, "Highest clock frequency.", (*_GPU, "hw.gpu.clock"))
THROTTLED = MetricSpec(
    "hw.gpu.throttle.active",
    "1",
    _GAUGE,
    "1 while the clocks are held below their maximum for this reason, else 0.",
    (*_GPU, "hw.gpu.throttle.reason"),
)
THROTTLE_TIME = MetricSpec(
    "hw.gpu.throttle.time",
    "s",
    _COUNTER,
    "Time for which the clocks were held down for this reason.",
    (*_GPU, "hw.gpu.throttle.reason"),
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
POWER_LIMIT = MetricSpec("hw.gpu.power.limit", "W", _GAUGE, "Power draw that is enforced.", _GPU, floating=True)
ENERGY = MetricSpec(
    "hw.energy", "J", _COUNTER, "Energy used since the agent started.", _COMPONENT, floating=True
)  # fmt: skip
ERRORS = MetricSpec(
    "hw.errors",
    "{error}",
    _COUNTER,
    "Memory errors by ECC, PCIe replays and XID events since the agent started.",
    (*_COMPONENT, "error.type", "hw.gpu.memory.location", "hw.gpu.xid"),
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
    "hw.gpu.process.memory.usage", "By", _LEVEL, "GPU memory that the driver holds for this process.", ("hw.id",)
)
PROCESS_UTILIZATION = MetricSpec(
    "hw.gpu.process.utilization",
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
    AttributeSpec("hw.gpu.clock", "Which clock.", ("graphics", "sm", "memory", "video")),
    AttributeSpec("hw.gpu.link", "Over which link.", ("pcie", "nvlink")),
    AttributeSpec("hw.gpu.memory.location", "Where ECC found the error.", ("dram", "sram")),
    AttributeSpec("hw.gpu.task", "Which part of the GPU.", ("general", "encoder", "decoder")),
    AttributeSpec(
        "hw.gpu.throttle.reason",
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
    AttributeSpec("hw.gpu.xid", "Number of the XID event, as NVIDIA's list of XIDs has it."),
    AttributeSpec("hw.id", "UUID as DCGM writes it: `GPU-…`, or `MIG-…` for an instance of a partitioned GPU."),
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
