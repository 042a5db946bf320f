"""What do threads of Python do that each stand in a function of their own? One waits for a GPU, where there is one.

Prints "ready" once they do, and ends with its input. With `--copies` a thread copies for as long as MOCKCUDA_COPY_GBPS makes it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable


def sleeps_in_python() -> None:
    time.sleep(1000)


def waits_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def computes() -> None:
    while True:
        pass


def copies_to_the_gpu() -> None:
    driver = ctypes.CDLL("libcuda.so.1")
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    driver.cuInit(0)
    driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
    driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(200_000))
    driver.cuMemcpyHtoD_v2(address, ctypes.create_string_buffer(200_000), ctypes.c_size_t(200_000))


def outermost(function: Callable[[], None]) -> None:
    function()


if __name__ == "__main__":
    functions = [sleeps_in_python, waits_for_a_lock, computes, *([copies_to_the_gpu] if "--copies" in sys.argv else [])]
    for function in functions:
        threading.Thread(target=outermost, args=(function,), daemon=True).start()
    time.sleep(0.5)
    print("ready", flush=True)
    sys.stdin.readline()
