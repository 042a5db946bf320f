"""Who holds GPU memory, does it grow, and what is copied how?"""

from __future__ import annotations

from .board import TO_PROCESS, TO_PROFILES, Board, Row
from .panels import RED, YELLOW, Lines, Number, Query
from .promql import PROCESS, gauge, mean, quantile, rate, share, sum_rate

_WHO = "{{job}} {{process_pid}} on {{host_name}}"
_COPIED = "gpu.cuda.memory.copies"
_HOST_SIDE = 'cuda_memory_host_type!=""'
_USED = gauge("gpu.cuda.memory.usage", PROCESS, 'cuda_memory_type=~"device|managed|async|virtual"')

BOARD = Board(
    "memory",
    "Memory and copies",
    "Who holds GPU memory, whether it grows without end, and what copies between host and GPU cost.",
    (
        Row(
            "Held",
            (
                Number(
                    "Fullest GPU",
                    "Share of its memory that is taken, by whomever. Above 97 % the next allocation may fail.",
                    "percentunit",
                    (Query(gauge("hw.gpu.memory.utilization", (), over="max"), "fullest"),),
                    limits=((0.9, YELLOW), (0.97, RED)),
                ),
                Number(
                    "Allocated by what is observed",
                    "GPU memory of the selected processes.",
                    "bytes",
                    (Query(gauge("gpu.cuda.memory.usage", (), 'cuda_memory_type!~"host|registered"'), "allocated"),),
                ),
                Number(
                    "Page-locked host memory",
                    "Host memory that cannot be swapped, for fast copies. It is missing elsewhere on the host.",
                    "bytes",
                    (Query(gauge("gpu.cuda.memory.usage", (), 'cuda_memory_type=~"host|registered"'), "page-locked"),),
                ),
                Lines(
                    "GPU memory, by process",
                    "Allocated and not freed. A floor that rises again and again is a leak (alert GpuMemoryGrows); the "
                    "profile `inuse` shows which code holds it.",
                    "bytes",
                    (Query(_USED, _WHO),),
                    links=(TO_PROFILES, TO_PROCESS),
                ),
                Lines(
                    "Memory, by type",
                    "`host` is page-locked, `async` comes from stream-ordered pools, `virtual` from cuMemCreate, which caching "
                    "allocators with expandable segments use.",
                    "bytes",
                    (Query(gauge("gpu.cuda.memory.usage", ("cuda.memory.type",)), "{{cuda_memory_type}}"),),
                    stacked=True,
                ),
                Lines(
                    "Not seen being allocated",
                    "What the driver says a process uses, less what was seen: contexts, modules, and what is older than the "
                    "agent.",
                    "bytes",
                    (Query(gauge("gpu.cuda.memory.untracked", PROCESS), _WHO),),
                ),
                Lines(
                    "Growth",
                    "By how much the memory that a process holds grows a second, over the last quarter of an hour.",
                    "binBps",
                    (
                        Query(
                            'sum by (job, host_name, process_pid) (deriv(gpu_cuda_memory_usage_bytes{host_name=~"$host", '
                            'job=~"$job", instance=~"$process", k8s_namespace_name=~"$namespace", k8s_pod_name=~"$pod", '
                            'hw_id=~"$gpu"}[15m]))',
                            _WHO,
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Allocated and freed",
            (
                Lines(
                    "Allocated",
                    "Bytes a second. Allocations in a steady state cost time: caching allocators make none.",
                    "binBps",
                    (
                        Query(
                            rate("gpu.cuda.memory.allocations", (*PROCESS, "cuda.memory.type")),
                            _WHO + " {{cuda_memory_type}}",
                        ),
                    ),
                    links=(TO_PROFILES,),
                ),
                Lines(
                    "Freed",
                    "Bytes a second.",
                    "binBps",
                    (
                        Query(
                            rate("gpu.cuda.memory.free.bytes", (*PROCESS, "cuda.memory.type")),
                            _WHO + " {{cuda_memory_type}}",
                        ),
                    ),
                ),
                Lines(
                    "Frees without an allocation",
                    "Of memory that is older than the agent: that much of what is held was not known.",
                    "ops",
                    (
                        Query(
                            rate("gpu.cuda.memory.unmatched.frees", (*PROCESS, "otel_gpu.reason")),
                            _WHO + " {{otel_gpu_reason}}",
                        ),
                    ),
                ),
                Lines(
                    "Filled",
                    "Bytes a second that memsets wrote, those of graphs apart.",
                    "binBps",
                    (
                        Query(rate("gpu.cuda.memset.bytes", PROCESS), _WHO),
                        Query(rate("gpu.cuda.graph.memset.bytes", PROCESS), _WHO + " in graphs"),
                    ),
                ),
            ),
        ),
        Row(
            "Copied",
            (
                Lines(
                    "Copied, by direction",
                    "Bytes a second, those of CUDA graphs apart.",
                    "binBps",
                    (
                        Query(sum_rate(_COPIED, ("cuda.memcpy.kind",)), "{{cuda_memcpy_kind}}"),
                        Query(
                            sum_rate("gpu.cuda.graph.memory.copies", ("cuda.memcpy.kind",)),
                            "{{cuda_memcpy_kind}} in graphs",
                        ),
                    ),
                    stacked=True,
                ),
                Lines(
                    "Copied, by kind of host memory",
                    "Pageable memory is copied twice and holds the caller up: page-locked (pinned) memory is two to three times "
                    "as fast.",
                    "binBps",
                    (Query(sum_rate(_COPIED, ("cuda.memory.host.type",), _HOST_SIDE), "{{cuda_memory_host_type}}"),),
                    stacked=True,
                ),
                Lines(
                    "Pageable share",
                    "Of the bytes between host and GPU (alert GpuPageableCopies). PyTorch: `pin_memory=True` of the data loader, "
                    "and `non_blocking=True`.",
                    "percentunit",
                    (
                        Query(
                            share(
                                sum_rate(_COPIED, PROCESS, 'cuda_memory_host_type="pageable"'),
                                sum_rate(_COPIED, PROCESS, _HOST_SIDE),
                            ),
                            _WHO,
                        ),
                    ),
                    limits=((0.5, YELLOW),),
                    highest=1,
                    links=(TO_PROFILES,),
                ),
                Lines(
                    "Size of a copy",
                    "At the chosen quantile. Many small ones cost more than their bytes.",
                    "bytes",
                    (Query(quantile(_COPIED, ("cuda.memcpy.kind",)), "{{cuda_memcpy_kind}}"),),
                ),
                Lines(
                    "Mean size of a copy",
                    "Exact: bytes by copies.",
                    "bytes",
                    (Query(mean(_COPIED, ("cuda.memcpy.kind",)), "{{cuda_memcpy_kind}}"),),
                ),
            ),
        ),
        Row(
            "HIP (there only where programs use AMD GPUs)",
            (
                Lines(
                    "GPU memory, by process and type",
                    "Allocated and not freed.",
                    "bytes",
                    (
                        Query(
                            gauge("gpu.hip.memory.usage", (*PROCESS, "hip.memory.type")), _WHO + " {{hip_memory_type}}"
                        ),
                    ),
                ),
                Lines(
                    "Allocated, freed and filled",
                    "Bytes a second.",
                    "binBps",
                    (
                        Query(rate("gpu.hip.memory.allocations", PROCESS), _WHO + " allocated"),
                        Query(rate("gpu.hip.memory.free.bytes", PROCESS), _WHO + " freed"),
                        Query(rate("gpu.hip.memset.bytes", PROCESS), _WHO + " filled"),
                        Query(rate("gpu.hip.graph.memset.bytes", PROCESS), _WHO + " filled by graphs"),
                    ),
                ),
                Lines(
                    "Copied, by direction",
                    "Bytes a second, those of graphs apart.",
                    "binBps",
                    (
                        Query(sum_rate("gpu.hip.memory.copies", ("hip.memcpy.kind",)), "{{hip_memcpy_kind}}"),
                        Query(
                            sum_rate("gpu.hip.graph.memory.copies", ("hip.memcpy.kind",)),
                            "{{hip_memcpy_kind}} in graphs",
                        ),
                    ),
                ),
                Lines(
                    "Frees without an allocation",
                    "Of memory that is older than the agent.",
                    "ops",
                    (
                        Query(
                            rate("gpu.hip.memory.unmatched.frees", (*PROCESS, "otel_gpu.reason")),
                            _WHO + " {{otel_gpu_reason}}",
                        ),
                    ),
                ),
            ),
            optional=True,
        ),
    ),
)
