"""Which function holds the most GPU memory, and which leaves some behind? One thread that allocates, frees and allocates again."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_size_t, c_uint64, c_void_p

from ctypes_calls import Driver

driver = Driver()
MIB = 1 << 20


def allocate(size: int) -> c_uint64:
    address = c_uint64()
    driver.cuMemAlloc_v2(byref(address), c_size_t(size))
    return address


def weights() -> list[c_uint64]:
    return [allocate(10 * MIB) for _ in range(2)]


def activations() -> None:
    held = [allocate(7 * MIB + i) for i in range(8)]
    for address in held:
        driver.cuMemFree_v2(address)


def cache() -> None:
    for i in range(30):
        address = allocate(1 * MIB + i)
        if i % 3:
            driver.cuMemFree_v2(address)


if __name__ == "__main__":
    context = c_void_p()
    driver.cuInit(0)
    driver.cuCtxCreate_v2(byref(context), 0, 0)
    kept = weights()
    activations()
    driver.cuMemFree_v2(kept[0])
    cache()
    ctypes.CDLL("libcuda.so.1").mockcuda_dump(None)
    os._exit(0)
