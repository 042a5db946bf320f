"""What does a process launch, does its GPU wait for it, and does it wait for its GPU?"""

from __future__ import annotations

from .board import TO_PROCESS, TO_PROFILES, Board, Row
from .panels import Column, Heat, Lines, Query, Rows
from .promql import PROCESS, buckets, count_rate, gauge, mean, quantile, rate, sum_rate

_WHO = "{{job}} {{process_pid}} on {{host_name}}"
_KERNEL = ("job", "cuda.kernel.name")
_LAUNCHES = rate("gpu.cuda.kernel.launch.calls", ("cuda.kernel.name",))
_OF_GRAPHS = rate("gpu.cuda.graph.kernel.calls", ("cuda.kernel.name",))

BOARD = Board(
    "process",
    "Processes and kernels",
    "What processes ask of their GPUs: kernels, graphs, waits, and whether host or GPU is what is waited for.",
    (
        Row(
            "Host or GPU?",
            (
                Lines(
                    "GPU busy, at least and at most",
                    "The time in which a GPU did anything for the process lies between the two. At most far below 1: the GPU "
                    "waits for the host (alert GpuHostBound).",
                    "percentunit",
                    (Query(rate("gpu.cuda.busy.time", (*PROCESS, "otel_gpu.bound")), _WHO + " {{otel_gpu_bound}}"),),
                    links=(TO_PROFILES,),
                ),
                Lines(
                    "Host waits",
                    "Threads that wait in a blocking call, on average, by function. Near 1 with a busy GPU is healthy: the "
                    "host is ahead. Near 0 with an idle GPU: look at the CPU profile.",
                    "none",
                    (
                        Query(
                            sum_rate("gpu.cuda.synchronize.duration", (*PROCESS, "cuda.function")),
                            _WHO + " {{cuda_function}}",
                        ),
                    ),
                    stacked=True,
                    links=(TO_PROFILES,),
                ),
                Lines(
                    "Gaps between batches",
                    "How long the GPU certainly had nothing to do each time, at the chosen quantile.",
                    "s",
                    (Query(quantile("gpu.cuda.idle.duration", PROCESS), _WHO),),
                ),
                Lines(
                    "Certainly idle",
                    "Share of time in these gaps.",
                    "percentunit",
                    (Query(sum_rate("gpu.cuda.idle.duration", PROCESS), _WHO),),
                ),
                Lines(
                    "Waits, how long",
                    "How long a blocking call took, at the chosen quantile.",
                    "s",
                    (
                        Query(
                            quantile("gpu.cuda.synchronize.duration", ("job", "cuda.function")),
                            "{{job}} {{cuda_function}}",
                        ),
                    ),
                ),
                Heat(
                    "Waits, all of them",
                    "How many blocking calls took how long.",
                    "s",
                    (Query(buckets("gpu.cuda.synchronize.duration"), "{{le}}"),),
                ),
            ),
        ),
        Row(
            "Kernels",
            (
                Lines(
                    "Launches, by process",
                    "Kernel launches a second. Some 100,000 are as many as one thread can make: then CUDA graphs help.",
                    "ops",
                    (Query(rate("gpu.cuda.kernel.launch.calls", PROCESS), _WHO),),
                    links=(TO_PROFILES,),
                ),
                Lines(
                    "Launches, the ten busiest kernels",
                    "By kernel, those of CUDA graphs included. `other` are kernels outside a process's top 50.",
                    "ops",
                    (
                        Query(f"topk(10, {_LAUNCHES})", "{{cuda_kernel_name}}"),
                        Query(f"topk(10, {_OF_GRAPHS})", "{{cuda_kernel_name}} in graphs"),
                    ),
                ),
                Rows(
                    "Kernels",
                    "One row a service and kernel: how often, and with how much. A grid of a few blocks leaves most of a GPU "
                    "without work.",
                    "short",
                    (
                        Query(f"topk(50, {rate('gpu.cuda.kernel.launch.calls', _KERNEL)})"),
                        Query(mean("gpu.cuda.kernel.grid.size", _KERNEL)),
                        Query(mean("gpu.cuda.kernel.block.size", _KERNEL)),
                    ),
                    columns=(
                        Column("A", "Launches a second", "ops"),
                        Column("B", "Blocks", "short"),
                        Column("C", "Threads a block", "short"),
                    ),
                    names={"job": "Service", "cuda_kernel_name": "Kernel"},
                ),
                Lines(
                    "Blocks in a grid",
                    "At the chosen quantile. Below the number of multiprocessors (132 on an H100) part of the GPU is idle.",
                    "short",
                    (Query(quantile("gpu.cuda.kernel.grid.size", PROCESS), _WHO),),
                ),
                Lines(
                    "Threads in a block",
                    "At the chosen quantile.",
                    "short",
                    (Query(quantile("gpu.cuda.kernel.block.size", PROCESS), _WHO),),
                ),
                Lines(
                    "Graphs",
                    "CUDA graph launches a second, and kernels that they executed.",
                    "ops",
                    (
                        Query(rate("gpu.cuda.graph.launch.calls", PROCESS), _WHO + " graphs"),
                        Query(rate("gpu.cuda.graph.kernel.calls", PROCESS), _WHO + " kernels"),
                    ),
                ),
                Lines(
                    "Between events",
                    "What the program itself measured between two events on the GPU, at the chosen quantile.",
                    "s",
                    (Query(quantile("gpu.cuda.event.elapsed.time", PROCESS), _WHO),),
                ),
            ),
        ),
        Row(
            "Errors",
            (
                Lines(
                    "Failed driver calls",
                    "By function and error. Out of memory that is followed by success is an allocator that tries; illegal "
                    "addresses end the process (alert GpuProcessErrors).",
                    "ops",
                    (
                        Query(
                            rate("gpu.cuda.errors", (*PROCESS, "cuda.function", "error.type")),
                            _WHO + " {{cuda_function}} {{error_type}}",
                        ),
                    ),
                ),
                Lines(
                    "Memory that a process holds, as the driver tells",
                    "Contexts and what the driver itself needs included.",
                    "bytes",
                    (Query(gauge("gpu.nvml.process.memory.usage", (*PROCESS, "hw.id")), _WHO + " {{hw_id}}"),),
                ),
            ),
        ),
        Row(
            "HIP (there only where programs use AMD GPUs)",
            (
                Lines(
                    "Launches, the ten busiest kernels",
                    "As above, of programs that use HIP.",
                    "ops",
                    (
                        Query(
                            f"topk(10, {rate('gpu.hip.kernel.launch.calls', ('job', 'hip.kernel.name'))})",
                            "{{job}} {{hip_kernel_name}}",
                        ),
                        Query(rate("gpu.hip.graph.launch.calls", PROCESS), _WHO + " graphs"),
                        Query(rate("gpu.hip.graph.kernel.calls", PROCESS), _WHO + " kernels of graphs"),
                    ),
                    links=(TO_PROCESS,),
                ),
                Lines(
                    "Host waits",
                    "Threads that wait in a blocking call, on average.",
                    "none",
                    (
                        Query(
                            sum_rate("gpu.hip.synchronize.duration", (*PROCESS, "hip.function")),
                            _WHO + " {{hip_function}}",
                        ),
                    ),
                ),
                Lines(
                    "Sizes of launches",
                    "Launches a second whose grids and blocks are known.",
                    "ops",
                    (
                        Query(count_rate("gpu.hip.kernel.grid.size", PROCESS), _WHO + " grids"),
                        Query(count_rate("gpu.hip.kernel.block.size", PROCESS), _WHO + " blocks"),
                    ),
                ),
                Lines(
                    "Failed calls",
                    "By function and error.",
                    "ops",
                    (
                        Query(
                            rate("gpu.hip.errors", (*PROCESS, "hip.function", "error.type")),
                            _WHO + " {{hip_function}} {{error_type}}",
                        ),
                    ),
                ),
            ),
            optional=True,
        ),
    ),
)
