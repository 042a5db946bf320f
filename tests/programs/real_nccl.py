"""Asks the real NCCL that it is given for collectives on two devices of this process, and says what it asked for.

Says "ready" with nothing made, waits for a line, makes two communicators and calls, says "phase", and waits for a last line.
What is computed is of no interest: devices are the mock driver's.
"""

from __future__ import annotations

import ctypes
import json
import sys

nccl = ctypes.CDLL(sys.argv[1])
cuda = ctypes.CDLL("libcuda.so.1")
DEVICES, SUM, MAX = 2, 0, 2
INT8, INT32, FLOAT16, FLOAT32 = 0, 2, 6, 7
CALLS = {
    "AllReduce": (3, 1000, FLOAT32, SUM),
    "ReduceScatter": (2, 20, FLOAT16, MAX),
    "AllGather": (4, 30, INT32, None),
    "Broadcast": (5, 40, INT8, None),
    "Reduce": (1, 50, FLOAT32, SUM),
}
"""How often, and of how many elements of which type."""


class Id(ctypes.Structure):
    """What a communicator is told by."""

    _fields_ = (("internal", ctypes.c_char * 128),)


def checked(result: int, name: str) -> None:
    if result:
        nccl.ncclGetErrorString.restype = ctypes.c_char_p
        raise SystemExit(f"{name}: {result} {nccl.ncclGetErrorString(result)!r}")


def call(name: str, *arguments: object) -> None:
    checked(getattr(nccl, f"nccl{name}")(*arguments), name)


def say(event: str, **more: object) -> None:
    print(json.dumps({"event": event, **more}), flush=True)
    sys.stdin.readline()


assert not cuda.cuInit(0)
contexts, memory = [], []
for device in range(DEVICES):
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    assert not cuda.cuCtxSetCurrent(context)
    assert not cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20))
    contexts.append(context)
    memory.append(ctypes.c_void_p(address.value))
say("ready")

unique = Id()
call("GetUniqueId", ctypes.byref(unique))
comms = [ctypes.c_void_p() for _ in range(DEVICES)]
call("GroupStart")
for rank in range(DEVICES):
    assert not cuda.cuCtxSetCurrent(contexts[rank])
    call("CommInitRank", ctypes.byref(comms[rank]), DEVICES, unique, rank)
call("GroupEnd")

for name, (times, count, datatype, reduction) in CALLS.items():
    for _ in range(times):
        call("GroupStart")
        for rank in range(DEVICES):
            assert not cuda.cuCtxSetCurrent(contexts[rank])
            before = [memory[rank], memory[rank], ctypes.c_size_t(count), datatype]
            if name in ("AllReduce", "ReduceScatter"):
                before.append(reduction)
            elif name == "Reduce":
                before += [reduction, 0]
            elif name == "Broadcast":
                before.append(0)
            call(name, *before, comms[rank], None)
        call("GroupEnd")
call("GroupStart")
for rank in range(DEVICES):
    assert not cuda.cuCtxSetCurrent(contexts[rank])
    call("Send", memory[rank], ctypes.c_size_t(60), FLOAT32, 1 - rank, comms[rank], None)
    call("Recv", memory[rank], ctypes.c_size_t(60), FLOAT32, 1 - rank, comms[rank], None)
call("GroupEnd")
version = ctypes.c_int()
call("GetVersion", ctypes.byref(version))
say("phase", id=list(bytes(unique)), version=version.value)
