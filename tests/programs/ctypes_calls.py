"""What does a Python program that calls the driver through ctypes do? Launches, copies and allocations, counted here.

Like launch_storm it prints "ready" before each phase, waits for a line on standard input, then prints what it did.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import time
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p

IMAGE = b""".version 8.0
.target sm_90
.address_size 64
.visible .entry embed_tokens()
{ ret; }
.visible .entry attend()
{ ret; }
"""
KERNELS = ("embed_tokens", "attend")
COPY_BYTES = 12345


class Driver:
    """libcuda.so.1, every call checked."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name: str):
        function = getattr(self._library, name)

        def call(*arguments: object) -> None:
            if code := function(*arguments):
                sys.exit(f"{name} failed: {code}")

        return call


def launch_attend(times: int) -> Driver:
    """Launch `attend` so many times in a context of its own, and return the driver."""
    driver = Driver()
    context, module, function = c_void_p(), c_void_p(), c_void_p()
    driver.cuInit(0)
    driver.cuCtxCreate_v2(byref(context), 0, 0)
    driver.cuModuleLoadData(byref(module), IMAGE)
    driver.cuModuleGetFunction(byref(function), module, b"attend")
    one = c_uint(1)
    for _ in range(times):
        driver.cuLaunchKernel(function, one, one, one, one, one, one, c_uint(0), None, None, None)
    return driver


def run_phase(driver: Driver, functions: dict[str, c_void_p], launches: int) -> dict[str, object]:
    block = (c_uint(128), c_uint(1), c_uint(1))
    for i in range(launches):
        grid = (c_uint(i + 1), c_uint(2), c_uint(1))
        driver.cuLaunchKernel(functions["embed_tokens"], *grid, *block, c_uint(0), None, None, None)
        if i % 4 == 0:
            driver.cuLaunchKernel(functions["attend"], *grid, *block, c_uint(0), None, None, None)
    device = c_uint64()
    host = ctypes.create_string_buffer(COPY_BYTES)
    driver.cuMemAlloc_v2(byref(device), c_size_t(COPY_BYTES))
    driver.cuMemcpyHtoD_v2(device, host, c_size_t(COPY_BYTES))
    driver.cuMemcpyDtoH_v2(host, device, c_size_t(COPY_BYTES))
    driver.cuMemFree_v2(device)
    driver.cuCtxSynchronize()
    return {
        "kernels": {"embed_tokens": {"launches": launches}, "attend": {"launches": (launches + 3) // 4}},
        "copies": [
            {"kind": kind, "host": "pageable", "count": 1, "bytes": COPY_BYTES}
            for kind in ("MemcpyHostToDevice", "MemcpyDeviceToHost")
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--phases", type=int, default=1)
    parser.add_argument("--launches", type=int, default=1000)
    parser.add_argument("--late-dlopen", type=float, default=0.0)
    parser.add_argument("--then", nargs=argparse.REMAINDER, help="a command to become at the end")
    options = parser.parse_args()

    time.sleep(options.late_dlopen)
    driver = Driver()
    context, module = c_void_p(), c_void_p()
    driver.cuInit(0)
    driver.cuDevicePrimaryCtxRetain(byref(context), 0)
    driver.cuCtxSetCurrent(context)
    driver.cuModuleLoadData(byref(module), IMAGE)
    functions = {name: c_void_p() for name in KERNELS}
    for name, function in functions.items():
        driver.cuModuleGetFunction(byref(function), module, name.encode())
    for phase in range(options.phases):
        print(json.dumps({"event": "ready", "pid": os.getpid(), "phase": phase}), flush=True)
        sys.stdin.readline()
        did = run_phase(driver, functions, options.launches)
        print(json.dumps({"event": "phase", "pid": os.getpid(), "phase": phase, **did}), flush=True)
    if options.then:
        os.execv(options.then[0], options.then)


if __name__ == "__main__":
    main()
