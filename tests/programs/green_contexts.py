"""On which device is work in a green context, and whose is the memory? A line on standard input leads to the next phase.

Works on device 1 in a green context and in one of its own, and on device 0; gives its reference to device 1's primary context back;
destroys the green context.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

IMAGE = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry work()\n{ ret; }\n"
SMS = 1  # CU_DEV_RESOURCE_TYPE_SM
DEFAULT_STREAM = NON_BLOCKING = 1
cu = ctypes.CDLL("libcuda.so.1")


class Resource(ctypes.Structure):
    """CUdevResource."""

    _fields_ = [("type", c_int), ("pad", ctypes.c_ubyte * 92), ("sms", c_uint * 10), ("next", c_void_p)]


class Parameters(ctypes.Structure):
    """CUctxCreateParams."""

    _fields_ = [("affinities", c_void_p), ("many", c_int), ("graphics", c_void_p)]


def check(code: int) -> None:
    assert code == 0, code


def allocate(size: int) -> None:
    check(cu.cuMemAlloc_v2(byref(c_uint64()), c_size_t(size)))


def launch(times: int, stream: c_void_p | None) -> None:
    module, function = c_void_p(), c_void_p()
    check(cu.cuModuleLoadData(byref(module), IMAGE))
    check(cu.cuModuleGetFunction(byref(function), module, b"work"))
    for _ in range(times):
        check(cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, None, None))


def next_phase(event: str) -> None:
    print(f'{{"event": "{event}"}}', flush=True)
    sys.stdin.readline()


def main() -> None:
    primaries = [c_void_p(), c_void_p()]
    description, green, converted, own, stream = (c_void_p() for _ in range(5))
    sms = Resource()
    check(cu.cuInit(0))
    next_phase("ready")
    for device, primary in enumerate(primaries):
        check(cu.cuDevicePrimaryCtxRetain(byref(primary), c_int(device)))
    check(cu.cuDeviceGetDevResource(1, byref(sms), SMS))
    check(cu.cuDevResourceGenerateDesc(byref(description), byref(sms), 1))
    check(cu.cuGreenCtxCreate(byref(green), description, 1, DEFAULT_STREAM))
    check(cu.cuCtxFromGreenCtx(byref(converted), green))
    check(cu.cuGreenCtxStreamCreate(byref(stream), green, NON_BLOCKING, 0))
    check(cu.cuCtxSetCurrent(converted))
    launch(3, None)
    launch(4, stream)
    allocate(1000)
    check(cu.cuCtxSetCurrent(primaries[0]))
    launch(1, None)
    allocate(2000)
    check(cu.cuCtxCreate_v4(byref(own), byref(Parameters()), 0, 1))
    launch(2, None)
    allocate(4000)
    next_phase("phase")
    check(cu.cuDevicePrimaryCtxRelease_v2(1))
    next_phase("phase")
    check(cu.cuGreenCtxDestroy(green))
    next_phase("phase")


if __name__ == "__main__":
    main()
