"""Waits in known functions for known times, and says how long each took.

The GPU's copies take time when MOCKCUDA_COPY_GBPS says so. Says "ready"; after each line of its input it waits again
and says {"waited": {function: nanoseconds}}.
"""

import ctypes
import json
import os
import sys
import threading
import time

SPENT = {}
CU = ctypes.CDLL("libcuda.so.1")
COPIED = ctypes.create_string_buffer(200_000)
ON_GPU = ctypes.c_uint64()


def timed(function):
    start = time.monotonic_ns()
    function()
    SPENT[function.__name__] = SPENT.get(function.__name__, 0) + time.monotonic_ns() - start


def sleeps():
    for _ in range(20):
        time.sleep(0.02)


def waits_for_a_thread():
    thread = threading.Thread(target=time.sleep, args=(0.3,))
    thread.start()
    thread.join()


def reads_a_pipe():
    reading, writing = os.pipe()
    threading.Timer(0.3, os.write, (writing, b"x")).start()
    os.read(reading, 1)


def waits_for_the_gpu():
    for _ in range(10):
        assert CU.cuMemcpyHtoD_v2(ON_GPU, COPIED, ctypes.c_size_t(len(COPIED))) == 0


def prepare_gpu():
    context = ctypes.c_void_p()
    assert CU.cuInit(0) == 0
    assert CU.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert CU.cuCtxSetCurrent(context) == 0
    assert CU.cuMemAlloc_v2(ctypes.byref(ON_GPU), ctypes.c_size_t(len(COPIED))) == 0


def computes():
    end = time.thread_time() + 0.3
    while time.thread_time() < end:
        sum(range(1000))


def naps():
    for _ in range(300):
        time.sleep(0.0001)


def say(event, **more):
    print(json.dumps(dict(more, event=event)), flush=True)


if __name__ == "__main__":
    prepare_gpu()
    say("ready")
    for _ in sys.stdin:
        SPENT.clear()
        for function in (sleeps, waits_for_a_thread, reads_a_pipe, waits_for_the_gpu, computes, naps):
            timed(function)
        say("phase", waited=SPENT)
