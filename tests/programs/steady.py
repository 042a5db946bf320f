"""Does what programs do of CUDA and NCCL, again and again, until it is ended: rates of all of it are above 0 at any time.

Says "ready", waits for a line, loads the driver and the library of NCCL that it is given, and says "phase" after the first round.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from ctypes import byref, c_float, c_size_t, c_uint, c_uint64, c_void_p

IMAGE = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry steady_work()\n{ ret; }\n"
BYTES = 1 << 16
FLOAT32 = 7
ONE = c_uint(1)


def say(event: str) -> None:
    print(json.dumps({"event": event}), flush=True)


say("ready")
sys.stdin.readline()
cu, nccl = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[1])


class Id(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)


def call(name: str, *arguments: object, of: ctypes.CDLL = cu) -> None:
    if code := getattr(of, name)(*arguments):
        raise OSError(f"{name} failed: {code}")


def made(create: str, *arguments: object) -> c_void_p:
    handle = c_void_p()
    call(create, byref(handle), *arguments)
    return handle


def launch(stream: c_void_p, grid: int) -> None:
    call("cuLaunchKernel", kernel, c_uint(grid), ONE, ONE, c_uint(128), ONE, ONE, c_uint(0), stream, None, None)


call("cuInit", 0)
made("cuCtxCreate_v2", 0, 0)
module = made("cuModuleLoadData", IMAGE)
kernel, stream, pinned = made("cuModuleGetFunction", module, b"steady_work"), made("cuStreamCreate", 1), c_void_p()
before, after = made("cuEventCreate", 0), made("cuEventCreate", 0)
call("cuMemAllocHost_v2", byref(pinned), c_size_t(BYTES))
pageable, memory, elapsed = ctypes.create_string_buffer(BYTES), c_uint64(), c_float()
call("cuMemAlloc_v2", byref(memory), c_size_t(BYTES))

call("cuStreamBeginCapture_v2", stream, 0)
launch(stream, 3)
call("cuMemcpyHtoDAsync_v2", memory, pinned, c_size_t(BYTES), stream)
call("cuMemsetD8Async", memory, ctypes.c_ubyte(0), c_size_t(BYTES), stream)
graph = c_void_p()
call("cuStreamEndCapture", stream, byref(graph))
executable = made("cuGraphInstantiateWithFlags", graph, c_uint64(0))

identity, comm = Id(), c_void_p()
call("ncclGetUniqueId", byref(identity), of=nccl)
call("ncclCommInitRank", byref(comm), 1, identity, 0, of=nccl)

rounds = 0
while True:
    call("cuEventRecord", before, stream)
    for grid in range(1, 20):
        launch(stream, grid)
    call("cuGraphLaunch", executable, stream)
    call("cuEventRecord", after, stream)
    call("cuEventSynchronize", after)
    call("cuEventElapsedTime", byref(elapsed), before, after)
    for host in (pageable, pinned):
        call("cuMemcpyHtoD_v2", memory, host, c_size_t(BYTES))
        call("cuMemcpyDtoH_v2", host, memory, c_size_t(BYTES))
    call("cuMemsetD8_v2", memory, ctypes.c_ubyte(0), c_size_t(BYTES))
    more = c_uint64()
    call("cuMemAlloc_v2", byref(more), c_size_t(BYTES))
    call("cuMemFree_v2", more)
    assert cu.cuMemAlloc_v2(byref(more), c_size_t(1 << 60))
    call("ncclAllReduce", None, None, c_size_t(1000), FLOAT32, 0, comm, stream, of=nccl)
    call("cuStreamSynchronize", stream)
    call("ncclGroupStart", of=nccl)
    call("ncclAllReduce", None, None, c_size_t(1000), FLOAT32, 0, comm, stream, of=nccl)
    call("ncclGroupEnd", of=nccl)
    call("cuStreamSynchronize", stream)
    if not rounds:
        say("phase")
    rounds += 1
    time.sleep(0.05)
