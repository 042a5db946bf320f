"""NVIDIA Warp: kernels compiled by NVRTC, arrays, fills, copies, a CUDA graph."""

from __future__ import annotations

import numpy as np
import phases
import warp as wp

wp.config.quiet = True
wp.init()


@wp.kernel
def saxpy(x: wp.array(dtype=float), y: wp.array(dtype=float), a: float):
    i = wp.tid()
    y[i] = y[i] + a * x[i]


def work() -> None:
    with wp.ScopedDevice("cuda:0"):
        x = wp.array(np.ones(1000, np.float32), dtype=float)
        y = wp.zeros(1000, dtype=float)
        wp.launch(saxpy, dim=1000, inputs=[x, y, 2.0])
        y.fill_(1.0)
        wp.copy(x, y)
        with wp.ScopedCapture() as capture:
            for _ in range(3):
                wp.launch(saxpy, dim=1000, inputs=[x, y, 0.5])
        wp.capture_launch(capture.graph)
        wp.capture_launch(capture.graph)
        y.numpy()
        wp.synchronize()


phases.run(work, wp.__version__)
