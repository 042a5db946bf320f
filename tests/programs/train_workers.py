"""A training script whose workers multiprocessing starts. Argument: how, such as spawn.

It launches 11 times itself, and two workers 22 and 33 times, once a line is read; all wait for another line before they end.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import sys
from multiprocessing.synchronize import Barrier

from ctypes_calls import IMAGE, Driver


def launch(times: int) -> None:
    """Launch a kernel so many times."""
    driver = Driver()
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    driver.cuInit(0)
    driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
    driver.cuModuleLoadData(ctypes.byref(module), IMAGE)
    driver.cuModuleGetFunction(ctypes.byref(function), module, b"attend")
    one = ctypes.c_uint(1)
    for _ in range(times):
        driver.cuLaunchKernel(function, one, one, one, one, one, one, ctypes.c_uint(0), None, None, None)


def work(times: int, barrier: Barrier) -> None:
    """Launch, and stay until all may end."""
    launch(times)
    barrier.wait()
    barrier.wait()


if __name__ == "__main__":
    print('{"event": "ready"}', flush=True)
    sys.stdin.readline()
    context = multiprocessing.get_context(sys.argv[1])
    barrier = context.Barrier(3)
    workers = [context.Process(target=work, args=(times, barrier)) for times in (22, 33)]
    for worker in workers:
        worker.start()
    launch(11)
    barrier.wait()
    print(json.dumps({"event": "phase", "pids": [os.getpid(), *(w.pid for w in workers)]}), flush=True)
    sys.stdin.readline()
    barrier.wait()
    for worker in workers:
        worker.join()
