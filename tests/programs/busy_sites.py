"""Gives a device work from different places in the code, and says how long each place's work takes.

Says "ready"; after each line of its input it does one round of the named way and says {"sites": {function: nanoseconds}}.
It ends with its input, or after as many rounds as it is told.
How long kernels take is in their names; the mock driver is told by MOCKCUDA_KERNEL_RULES.
"""

import ctypes
import json
import sys
import threading
import time
from collections import Counter
from ctypes import byref, c_uint, c_void_p

KERNELS = {"takes_50us": 50_000, "takes_500us": 500_000, "takes_5ms": 5_000_000}
IMAGE = ".version 8.0\n.target sm_90\n.address_size 64\n" + "".join(
    f".visible .entry {name}()\n{{ ret; }}\n" for name in KERNELS
)
ONE, NONE = c_uint(1), c_uint(0)


class Driver:
    """libcuda.so.1, every call checked."""

    def __init__(self):
        self._library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name):
        function = getattr(self._library, name)

        def call(*arguments):
            if code := function(*arguments):
                sys.exit(f"{name} failed: {code}")

        setattr(self, name, call)
        return call


CU = Driver()
TOOK = Counter()


class Work:
    """One context, some streams, the kernels, and a graph of three."""

    def __init__(self):
        self.context, module, graph = c_void_p(), c_void_p(), c_void_p()
        CU.cuInit(NONE)
        CU.cuDevicePrimaryCtxRetain(byref(self.context), NONE)
        CU.cuCtxSetCurrent(self.context)
        CU.cuModuleLoadData(byref(module), IMAGE.encode())
        self.kernels = {name: c_void_p() for name in KERNELS}
        for name, kernel in self.kernels.items():
            CU.cuModuleGetFunction(byref(kernel), module, name.encode())
        self.streams = [c_void_p() for _ in range(2)]
        for stream in self.streams:
            CU.cuStreamCreate(byref(stream), ONE)
        self.graph = c_void_p()
        CU.cuStreamBeginCapture_v2(self.streams[0], ONE)
        for _ in range(3):
            self.launch("takes_500us")
        CU.cuStreamEndCapture(self.streams[0], byref(graph))
        CU.cuGraphInstantiateWithFlags(byref(self.graph), graph, ctypes.c_uint64(0))

    def launch(self, kernel, stream=0):
        CU.cuLaunchKernel(self.kernels[kernel], *(ONE,) * 6, NONE, self.streams[stream], None, None)
        return KERNELS[kernel]

    def wait(self, stream=0):
        CU.cuStreamSynchronize(self.streams[stream])


def slow_site(work, stream=0):
    TOOK["slow_site"] += work.launch("takes_5ms", stream)


def quick_site(work, stream=0):
    for _ in range(10):
        TOOK["quick_site"] += work.launch("takes_50us", stream)


def graph_site(work):
    CU.cuGraphLaunch(work.graph, work.streams[0])
    TOOK["graph_site"] += 3 * KERNELS["takes_500us"]


def alternating(work):
    """Each batch is one site's."""
    for _ in range(100):
        slow_site(work)
        work.wait()
        quick_site(work)
        work.wait()


def mixed(work):
    """Batches of both, and of one."""
    for i in range(60):
        if i % 3 != 1:
            slow_site(work)
        if i % 3 != 2:
            quick_site(work)
        work.wait()


def at_once(work):
    """Two streams, given work and waited for by two threads."""

    def other():
        CU.cuCtxSetCurrent(work.context)
        for _ in range(20):
            quick_site(work, 1)
            work.wait(1)
            time.sleep(0.005)

    thread = threading.Thread(target=other)
    thread.start()
    for _ in range(30):
        slow_site(work)
        work.wait()
    thread.join()


def graphs(work):
    for i in range(60):
        if i % 2:
            graph_site(work)
        else:
            quick_site(work)
        work.wait()


def busy_loop(work):
    """More launches than stacks are taken of."""
    end = time.monotonic() + 2
    while time.monotonic() < end:
        slow_site(work)
        work.wait()
        for _ in range(10):
            quick_site(work)
            work.wait()


def never_waiting(work):
    """Nobody waits: the device's work is known to go on, and no more."""
    for _ in range(40):
        slow_site(work)
    time.sleep(0.3)


WAYS = {f.__name__: f for f in (alternating, mixed, at_once, graphs, busy_loop, never_waiting)}


def main():
    work = Work()
    print(json.dumps({"event": "ready"}), flush=True)
    for number, _ in enumerate(sys.stdin, start=1):
        TOOK.clear()
        WAYS[sys.argv[1]](work)
        print(json.dumps({"event": "phase", "sites": TOOK}), flush=True)
        if len(sys.argv) > 2 and number == int(sys.argv[2]):
            return


if __name__ == "__main__":
    main()
