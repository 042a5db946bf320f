"""Waits for collectives on streams of the driver in every way, of the library of NCCL's that it is given, and says how long it took.

Says "ready", waits for a line, makes a communicator, calls, says "phase", and waits for a last line.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time

cu, nccl = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[1])
FLOAT32 = 7


class Id(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)


def check(result: int) -> None:
    assert result == 0, result


def made(create: str, *arguments: object) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    check(getattr(cu, create)(ctypes.byref(handle), *arguments))
    return handle


def say(event: str, **more: object) -> None:
    print(json.dumps({"event": event, **more}), flush=True)
    sys.stdin.readline()


def reduce_all(stream: ctypes.c_void_p | None, count: int = 1000) -> None:
    check(nccl.ncclAllReduce(None, None, ctypes.c_size_t(count), FLOAT32, 0, comm, stream))


def gather_all(stream: ctypes.c_void_p, count: int = 1000) -> None:
    check(nccl.ncclAllGather(None, None, ctypes.c_size_t(count), FLOAT32, comm, stream))


def rooted(name: str, stream: ctypes.c_void_p | None) -> None:
    check(getattr(nccl, f"nccl{name}")(None, None, ctypes.c_size_t(10), FLOAT32, 0, comm, stream))


check(cu.cuInit(0))
made("cuCtxCreate_v2", 0, 0)
say("ready")
identity, comm = Id(), ctypes.c_void_p()
check(nccl.ncclGetUniqueId(ctypes.byref(identity)))
check(nccl.ncclCommInitRank(ctypes.byref(comm), 4, identity, 3))
stream, other, event = made("cuStreamCreate", 1), made("cuStreamCreate", 1), made("cuEventCreate", 2)

began = time.monotonic()
reduce_all(stream)
time.sleep(0.05)
check(cu.cuStreamSynchronize(stream))
waited_s = time.monotonic() - began

gather_all(stream)
gather_all(stream)
check(cu.cuEventRecord(event, stream))
gather_all(stream)
check(cu.cuEventQuery(event))

# In a group nothing is on the stream before its end.
check(nccl.ncclGroupStart())
rooted("Broadcast", other)
check(cu.cuStreamSynchronize(other))
time.sleep(0.05)
began = time.monotonic()
check(nccl.ncclGroupEnd())
check(cu.cuStreamQuery(other))
grouped_s = time.monotonic() - began

# Captured, nothing is put on the stream either.
check(cu.cuStreamBeginCapture_v2(other, 0))
rooted("Gather", other)
graph = ctypes.c_void_p()
check(cu.cuStreamEndCapture(other, ctypes.byref(graph)))
check(cu.cuStreamSynchronize(other))

# An event that is recorded elsewhere says nothing of this stream, nor what is done on another, nor the default stream's end of any.
rooted("Scatter", stream)
check(cu.cuEventRecord(event, stream))
check(cu.cuEventRecord(event, other))
check(cu.cuEventSynchronize(event))
check(cu.cuStreamSynchronize(other))
rooted("Scatter", None)
check(cu.cuStreamSynchronize(None))
check(cu.cuStreamDestroy_v2(stream))

# More than are followed: the last ones are not.
for _ in range(20):
    check(nccl.ncclReduce(None, None, ctypes.c_size_t(10), FLOAT32, 0, 0, comm, other))
check(cu.cuStreamSynchronize(other))
say("phase", waited_s=waited_s, grouped_s=grouped_s)
