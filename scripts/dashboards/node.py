"""What do the GPUs of a host do, how are they, and which processes use them?"""

from __future__ import annotations

from .board import TO_PROCESS, TO_PROFILES, Board, Row
from .panels import RED, YELLOW, Column, Lines, Number, Query, Rows
from .promql import PROCESS, gauge, lately, rate

_GPU = ("host.name", "hw.id", "hw.name")
_NAMED = "{{host_name}} {{hw_name}}"


def _dcgm(metric: str) -> str:
    """Return a metric of dcgm-exporter with `hw_id`, which is its `UUID`."""
    return f'max by (hw_id) (label_replace({metric}, "hw_id", "$1", "UUID", "(.+)"))'


_BUSY = 'sum by (hw_id) (rate(gpu_cuda_busy_time_seconds_total{host_name=~"$host", hw_id=~"$gpu", otel_gpu_bound="upper"}[$__rate_interval]))'
_NAMES = 'max by (hw_id, host_name, hw_name) (hw_gpu_memory_limit_bytes{host_name=~"$host", hw_id=~"$gpu"})'
_ON_GPU = f"* on (hw_id) group_left (host_name, hw_name) (0 * {_NAMES} + 1)"

BOARD = Board(
    "node",
    "Node",
    "The GPUs of a host: what NVML says of them, their health, and who uses them.",
    (
        Row(
            "Use",
            (
                Lines(
                    "Busy",
                    "Share of time in which any kernel ran on the GPU (NVML). 100 % may still be one small kernel at a time: "
                    "the row of DCGM below tells how many of its units worked.",
                    "percentunit",
                    (Query(gauge("hw.gpu.utilization", _GPU, 'hw_gpu_task="general"', over="max"), _NAMED),),
                    highest=1,
                ),
                Lines(
                    "Encoder and decoder",
                    "Share of time in which the video units worked.",
                    "percentunit",
                    (
                        Query(
                            gauge("hw.gpu.utilization", (*_GPU, "hw.gpu.task"), 'hw_gpu_task!="general"', over="max"),
                            _NAMED + " {{hw_gpu_task}}",
                        ),
                    ),
                    highest=1,
                ),
                Lines(
                    "Memory in use",
                    "All that is taken on the GPU, by whomever, the driver included.",
                    "bytes",
                    (
                        Query(gauge("hw.gpu.memory.usage", _GPU), _NAMED),
                        Query(gauge("hw.gpu.memory.limit", _GPU), _NAMED + " size"),
                    ),
                ),
                Lines(
                    "Bytes over PCIe and NVLink",
                    "From the GPU's side. Close to the link's rate, copies are what is waited for.",
                    "binBps",
                    (
                        Query(
                            rate("hw.gpu.io", (*_GPU, "gpu.nvml.link", "network.io.direction"))
                            + " or "
                            + gauge("gpu.nvml.io.rate", (*_GPU, "gpu.nvml.link", "network.io.direction")),
                            _NAMED + " {{gpu_nvml_link}} {{network_io_direction}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Health",
            (
                Number(
                    "GPUs that are not well",
                    "GPUs that have fallen off the bus, or have memory rows that wait for a reset (alert GpuFailed).",
                    "none",
                    (Query(gauge("hw.status", (), 'hw_state!="ok"'), "not well"),),
                    limits=((1, RED),),
                ),
                Number(
                    "Errors in the last hour",
                    "XID events, uncorrected memory errors and PCIe replays.",
                    "none",
                    (
                        Query(
                            'sum(increase(hw_errors_total{host_name=~"$host", hw_id=~"$gpu", error_type!="corrected"}[1h]))',
                            "errors",
                        ),
                    ),
                    limits=((1, RED),),
                ),
                Number(
                    "GPUs held back",
                    "GPUs whose clocks are held down by heat, power or hardware now (alert GpuThrottled).",
                    "none",
                    (
                        Query(
                            "count("
                            + gauge(
                                "gpu.nvml.throttle.active",
                                ("hw.id",),
                                'gpu_nvml_throttle_reason=~"hw_.+|sw_thermal|thermal|reliability"',
                                over="max",
                            )
                            + " > 0) or vector(0)",
                            "held back",
                        ),
                    ),
                    limits=((1, YELLOW),),
                ),
                Lines(
                    "Temperature",
                    "Of the die, and where the GPU slows down or shuts off.",
                    "celsius",
                    (
                        Query(gauge("hw.temperature", _GPU, over="max"), _NAMED),
                        Query(
                            gauge("hw.temperature.limit", (*_GPU, "hw.limit_type"), over="max"),
                            _NAMED + " limit {{hw_limit_type}}",
                        ),
                    ),
                ),
                Lines(
                    "Power",
                    "What the GPU draws, and what it may. At the limit its clocks go down.",
                    "watt",
                    (
                        Query(gauge("hw.power", _GPU), _NAMED),
                        Query(gauge("gpu.nvml.power.limit", _GPU), _NAMED + " limit"),
                    ),
                ),
                Lines(
                    "Energy",
                    "The same from the counter of energy, which misses no peak.",
                    "watt",
                    (Query(rate("hw.energy", _GPU), _NAMED),),
                ),
                Lines(
                    "Clocks",
                    "Frequencies, and how high they could be.",
                    "hertz",
                    (
                        Query(
                            gauge("gpu.nvml.speed", (*_GPU, "gpu.nvml.clock"), over="max"),
                            _NAMED + " {{gpu_nvml_clock}}",
                        ),
                        Query(
                            gauge("gpu.nvml.speed.limit", (*_GPU, "gpu.nvml.clock"), over="max"),
                            _NAMED + " {{gpu_nvml_clock}} limit",
                        ),
                    ),
                ),
                Lines(
                    "Clocks held down, by reason",
                    "Share of time for which a reason held the clocks below their maximum. `idle` and `low_utilization` do no "
                    "harm.",
                    "percentunit",
                    (
                        Query(
                            rate("gpu.nvml.throttle.time", (*_GPU, "gpu.nvml.throttle.reason")),
                            _NAMED + " {{gpu_nvml_throttle_reason}}",
                        ),
                    ),
                ),
                Lines(
                    "Errors, by kind",
                    "Memory errors by ECC, PCIe replays and XID events a second. Corrected ones do no harm but may come before "
                    "others.",
                    "short",
                    (Query(rate("hw.errors", (*_GPU, "error.type")), _NAMED + " {{error_type}}"),),
                ),
            ),
        ),
        Row(
            "Who uses them",
            (
                Rows(
                    "Processes",
                    "One row a process and GPU: its share of the GPU's time and memory, as the driver tells.",
                    "short",
                    (
                        Query(lately("", "gpu.nvml.process.utilization", (*PROCESS, "hw.id"))),
                        Query(gauge("gpu.nvml.process.memory.usage", (*PROCESS, "hw.id"))),
                    ),
                    columns=(Column("A", "Busy", "percentunit"), Column("B", "Memory", "bytes")),
                    names={"host_name": "Host", "job": "Service", "process_pid": "pid", "hw_id": "GPU"},
                    links=(TO_PROCESS, TO_PROFILES),
                ),
            ),
        ),
        Row(
            "With dcgm-exporter (there only where Prometheus scrapes it too)",
            (
                Lines(
                    "Units that worked, beside the time in which there was work",
                    "SM active is the share of multiprocessors with work (DCGM), busy the share of time with any (otel-gpu, at "
                    "most). Far apart: kernels are too small, or too few at once.",
                    "percentunit",
                    (
                        Query(f"{_dcgm('DCGM_FI_PROF_SM_ACTIVE')} {_ON_GPU}", _NAMED + " SM active"),
                        Query(f"({_BUSY}) and on (hw_id) {_dcgm('DCGM_FI_PROF_SM_ACTIVE')}", "{{hw_id}} busy"),
                    ),
                ),
                Lines(
                    "Tensor cores and memory",
                    "Share of cycles in which tensor cores worked, and in which the memory moved data (DCGM).",
                    "percentunit",
                    (
                        Query(f"{_dcgm('DCGM_FI_PROF_PIPE_TENSOR_ACTIVE')} {_ON_GPU}", _NAMED + " tensor cores"),
                        Query(f"{_dcgm('DCGM_FI_PROF_DRAM_ACTIVE')} {_ON_GPU}", _NAMED + " memory"),
                    ),
                ),
                Lines(
                    "Processes on GPUs of which little works",
                    "Launches a second of each process, of GPUs where less than half of the multiprocessors have work: who to "
                    "ask about it.",
                    "ops",
                    (
                        Query(
                            rate("gpu.cuda.kernel.launch.calls", (*PROCESS, "hw.id"))
                            + f" and on (hw_id) ({_dcgm('DCGM_FI_PROF_SM_ACTIVE')} < 0.5)",
                            "{{job}} {{process_pid}} on {{host_name}}",
                        ),
                    ),
                    links=(TO_PROCESS,),
                ),
            ),
            optional=True,
        ),
    ),
)
