"""What does CuPy make of the driver? A kernel compiled while it runs, and copies whose bytes are known."""

from __future__ import annotations

from collections.abc import Mapping

from protocol import Phase, serve

ELEMENTS, LAUNCHES = 1 << 20, 50
SOURCE = r"""
extern "C" __global__ void gpu_check_scale(float *values, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) values[i] *= 1.0f;
}
"""


def _prepare() -> list[Phase]:
    import cupy
    import numpy as np

    kernel = cupy.RawKernel(SOURCE, "gpu_check_scale")
    host = np.ones(ELEMENTS, dtype=np.float32)

    def scale() -> Mapping[str, object]:
        values = cupy.asarray(host)
        for _ in range(LAUNCHES):
            kernel((ELEMENTS // 256,), (256,), (values, np.int32(ELEMENTS)))
        back = cupy.asnumpy(values)
        return {
            "launches": {"gpu_check_scale": LAUNCHES},
            "copied": {"MemcpyHostToDevice": host.nbytes, "MemcpyDeviceToHost": back.nbytes},
            "right": bool((back == 1).all()),
        }

    return [scale, scale]


serve(_prepare)
