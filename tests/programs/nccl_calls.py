"""Calls every function of NCCL that is counted, of the library that it is given, and says what it asked for.

Says "ready" with the communicator that it has already, waits for a line, calls, says "phase", and waits for a last line.
"""

from __future__ import annotations

import ctypes
import json
import sys

nccl = ctypes.CDLL(sys.argv[1])
INT8, FLOAT16, FLOAT64 = 0, 6, 8


class Id(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)


def made(init, *arguments):
    comm = ctypes.c_void_p()
    assert init(ctypes.byref(comm), *arguments) == 0
    return comm


def new_id() -> Id:
    found = Id()
    assert nccl.ncclGetUniqueId(ctypes.byref(found)) == 0
    return found


def n(count: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(count)


def call(name: str, *arguments, result: int = 0) -> None:
    assert getattr(nccl, f"nccl{name}")(*arguments) == result, name


def say(event: str, **more: object) -> None:
    print(json.dumps({"event": event, **more}), flush=True)
    sys.stdin.readline()


old = made(nccl.ncclCommInitRank, 8, new_id(), 5)
say("ready")
ids = [new_id() for _ in range(3)]
first = made(nccl.ncclCommInitRank, 4, ids[0], 3)
second = made(nccl.ncclCommInitRankConfig, 3, ids[1], 1, None)
third = made(nccl.ncclCommInitRankScalable, 6, 2, 1, ctypes.byref(ids[2]), None)
both = (ctypes.c_void_p * 2)()
call("CommInitAll", both, 2, None)
ctypes.c_int.in_dll(nccl, "standin_split_rank").value = 1
ctypes.c_int.in_dll(nccl, "standin_split_ranks").value = 2
split = ctypes.c_void_p()
call("CommSplit", first, 7, 0, ctypes.byref(split), None)

call("AllReduce", None, None, n(1000), FLOAT16, 4, first, None)
call("AllReduceConfig", None, None, n(10), FLOAT16, 4, first, None, None)
call("ReduceScatter", None, None, n(20), FLOAT64, 0, second, None)
call("AllGather", None, None, n(30), FLOAT64, third, None)
call("AlltoAll", None, None, n(40), INT8, third, None)
call("Broadcast", None, None, n(50), INT8, 2, first, None)
call("Bcast", None, n(60), INT8, 2, first, None)
call("Reduce", None, None, n(70), FLOAT64, 1, 0, second, None)
call("Gather", None, None, n(80), INT8, 0, second, None)
call("Scatter", None, None, n(90), INT8, 0, second, None)
call("Send", None, n(11), FLOAT64, 1, first, None)
call("Recv", None, n(12), FLOAT64, 1, first, None)
call("AllReduce", None, None, n(5), FLOAT64, 0, split, None)
call("AllReduce", None, None, n(9), INT8, 2, old, None)
call("AllReduce", None, None, n(9), INT8, 2, None, None, result=4)
for _ in range(3):
    call("GroupStart")
    call("GroupStart")
    for comm in both:
        call("AllReduce", None, None, n(100), FLOAT64, 0, ctypes.c_void_p(comm), None)
    call("GroupEnd")
    call("GroupEnd")
call("CommAbort", second)
call("CommDestroy", third)
say("phase", ids=[list(ctypes.string_at(ctypes.byref(one), 128)) for one in ids])
