"""Launches through much native code: a line on standard input maps far_chain.c's library, each further one launches once.

Says "ready" before each.
"""

import ctypes
import json
import os
import sys

CU = ctypes.CDLL("libcuda.so.1")


class Launch(ctypes.Structure):
    _fields_ = [("function", ctypes.c_void_p), ("kernel", ctypes.c_void_p)]


def check(result):
    assert result == 0, result


def make_kernel():
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check(CU.cuInit(0))
    check(CU.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(CU.cuCtxSetCurrent(context))
    source = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry far_kernel()\n{ ret; }\n\0"
    check(CU.cuModuleLoadData(ctypes.byref(module), source))
    check(CU.cuModuleGetFunction(ctypes.byref(kernel), module, b"far_kernel"))
    return kernel


def step(library, what):
    check(library.chain(library.launch, ctypes.byref(what)))


def wait():
    print(json.dumps({"event": "ready", "pid": os.getpid()}), flush=True)
    return sys.stdin.readline()


what = Launch(ctypes.cast(CU.cuLaunchKernel, ctypes.c_void_p).value, make_kernel().value)
if wait():
    library = ctypes.CDLL(sys.argv[1])
    while wait():
        step(library, what)
