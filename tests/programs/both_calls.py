"""What does a program do that uses CUDA and HIP side by side? Allocations and copies of each, counted apart.

It prints "ready", waits for a line on standard input, prints "phase" and ends.
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

CUDA_BYTES, HIP_BYTES, COPIES = 1000, 7000, 5


def say(event: str) -> None:
    sys.stdout.write(json.dumps({"event": event}) + "\n")
    sys.stdout.flush()


def check(code: int) -> None:
    if code:
        sys.exit(f"a call failed: {code}")


def main() -> None:
    cuda, hip = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libamdhip64.so.6")
    context, at, host = c_void_p(), c_uint64(), ctypes.create_string_buffer(max(CUDA_BYTES, HIP_BYTES))
    say("ready")
    sys.stdin.readline()
    check(cuda.cuInit(0))
    check(cuda.cuCtxCreate_v2(byref(context), 0, c_int(0)))
    check(cuda.cuMemAlloc_v2(byref(at), c_size_t(CUDA_BYTES)))
    for _ in range(COPIES):
        check(cuda.cuMemcpyHtoD_v2(at, host, c_size_t(CUDA_BYTES)))
    left, freed = c_void_p(), c_void_p()
    check(hip.hipSetDevice(0))
    check(hip.hipMalloc(byref(left), c_size_t(HIP_BYTES)))
    check(hip.hipMalloc(byref(freed), c_size_t(HIP_BYTES)))
    for _ in range(COPIES):
        check(hip.hipMemcpy(left, host, c_size_t(HIP_BYTES), 1))
    check(hip.hipFree(freed))
    # Ends what HIP has on its first device, and nothing that CUDA has.
    check(hip.hipDeviceReset())
    say("phase")
    sys.stdin.readline()


if __name__ == "__main__":
    main()
