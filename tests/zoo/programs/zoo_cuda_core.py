"""cuda.core: NVIDIA's Python on the driver; kernels by NVRTC, buffers of its pools, copies and fills, a graph."""

from __future__ import annotations

import importlib.metadata

import phases
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

_DEVICE = Device()
_DEVICE.set_current()
_STREAM = _DEVICE.create_stream()
_SOURCE = 'extern "C" __global__ void own_kernel(float *p) { p[threadIdx.x] = 1; }'
_OPTIONS = ProgramOptions(std="c++17", arch=f"sm_{_DEVICE.arch}")
_KERNEL = Program(_SOURCE, "c++", _OPTIONS).compile("cubin").get_kernel("own_kernel")


def work() -> None:
    buffer, other = _DEVICE.allocate(4096, stream=_STREAM), _DEVICE.allocate(4096, stream=_STREAM)
    for _ in range(3):
        launch(_STREAM, LaunchConfig(grid=4, block=64), _KERNEL, buffer)
    buffer.copy_to(other, stream=_STREAM)
    other.fill(0, stream=_STREAM)
    buffer.close(_STREAM)
    other.close(_STREAM)
    _STREAM.sync()


phases.run(work, importlib.metadata.version("cuda-core"))
