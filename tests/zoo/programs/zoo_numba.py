"""numba-cuda: kernels compiled by itself, copies in both directions, pinned, mapped and managed memory, streams."""

from __future__ import annotations

import numba_cuda
import numpy as np
import phases
from numba import cuda


@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


@cuda.jit
def scale(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= factor


def work() -> None:
    x = np.ones(1000, np.float32)
    pinned = cuda.pinned_array(1000, np.float32)
    pinned[:] = 1
    stream = cuda.stream()
    a, b = cuda.to_device(x), cuda.to_device(pinned, stream=stream)
    out = cuda.device_array_like(a)
    add[8, 128](a, b, out)
    add[8, 128, stream](a, b, out)
    scale[4, 256](out, 2.0)
    cuda.to_device(x, to=out)
    out.copy_to_host(pinned, stream=stream)
    out[10:20].copy_to_host()
    managed = cuda.managed_array(256, np.float32)
    scale[1, 256](managed, 3.0)
    stream.synchronize()
    cuda.synchronize()


phases.run(work, numba_cuda.__version__)
