"""CuPy: elementwise kernels, a reduction, one of its own by NVRTC, a graph, pinned memory, its pool and the driver's."""

from __future__ import annotations

import cupy as cp
import numpy as np
import phases

_OWN = cp.RawKernel('extern "C" __global__ void own_kernel(float *p) { p[threadIdx.x] = 1; }', "own_kernel")
_HOST = cp.cuda.alloc_pinned_memory(4096)


def work() -> None:
    x = cp.asarray(np.ones(1000, np.float32))
    y = x * 2 + 1
    _OWN((4,), (64,), (x,))
    y.sum()
    y.fill(0)
    cp.copyto(x, y)
    cp.asnumpy(y)
    x.data.copy_to_host_async(_HOST.ptr, 4000, cp.cuda.Stream.null)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        _OWN((1,), (32,), (x,))
        _OWN((1,), (32,), (x,))
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
    with cp.cuda.using_allocator(cp.cuda.malloc_async):
        cp.empty(1 << 16, cp.uint8)
    cp.get_default_memory_pool().free_all_blocks()
    cp.cuda.Device(0).synchronize()


phases.run(work, cp.__version__)
