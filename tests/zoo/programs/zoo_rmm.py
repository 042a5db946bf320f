"""RMM: memory from each of its resources, under CuPy's kernels and in buffers that are copied and grow."""

from __future__ import annotations

import cupy as cp
import phases
import rmm
from rmm.allocators.cupy import rmm_cupy_allocator

_BYTES = b"x" * 12345
_RESOURCES = (
    rmm.mr.CudaMemoryResource(),
    rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=1 << 22),
    rmm.mr.CudaAsyncMemoryResource(),
    rmm.mr.ManagedMemoryResource(),
)
cp.cuda.set_allocator(rmm_cupy_allocator)


def work() -> None:
    for resource in _RESOURCES:
        rmm.mr.set_current_device_resource(resource)
        x = cp.arange(10_000, dtype=cp.float32)
        (x * 2 + 1).sum()
        x.get()
        buffer = rmm.DeviceBuffer.to_device(_BYTES)
        buffer.copy().tobytes()
        buffer.resize(20_000)


phases.run(work, rmm.__version__)
