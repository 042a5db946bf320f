"""What do a program and all that come of it do? It launches, and so do children that it makes in every way there is.

Arguments: the path of launch_storm. Each process makes as many calls as its own rank says.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
import time

from ctypes_calls import launch_attend

STORM = sys.argv[1]


def work(rank: int) -> None:
    """Launch some kernels, and allocate and free some memory, of which a part stays."""
    driver = launch_attend(100 * rank)
    for i in range(10 * rank):
        address = ctypes.c_uint64()
        driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1000 + i))
        if i % 2:
            driver.cuMemFree_v2(address)
    # A process of multiprocessing ends without its exit handlers: the mock driver writes now what it saw.
    ctypes.CDLL("libcuda.so.1").mockcuda_dump(None)


def daemon() -> None:
    """Leave a process behind that nobody waits for, and which begins when its parents have ended."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    time.sleep(1.5)
    os.execv(STORM, [STORM, "--threads", "1", "--launches", "70", "--memory", "5"])


if __name__ == "__main__":
    work(1)
    forked = [multiprocessing.get_context("fork").Process(target=work, args=(rank,)) for rank in (2, 3)]
    spawned = [multiprocessing.get_context("spawn").Process(target=work, args=(rank,)) for rank in (4, 5)]
    for child in forked + spawned:
        child.start()
    subprocess.run(
        ["sh", "-c", f"{STORM} --threads 2 --launches 50 --memory 5 & {STORM} --launches 9; wait"], check=True
    )
    for child in forked + spawned:
        child.join()
    daemon()
