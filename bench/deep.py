"""Launches from the bottom of a stack of Python and C functions, as a model in a training loop does.

Run by bench/stacks.py: deep.py HELPER. Orders, one a line: "launch CALLS ROUNDS" (ROUNDS of a loop between two launches).
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable

_PYTHON_FRAMES = 9
"""On either side of a piece of C."""


def main() -> None:
    cuda, helper = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[1])
    helper.launch_many.restype = ctypes.c_uint64
    helper.launch_many.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    source = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry deep()\n{ ret; }\n\0"
    assert not cuda.cuInit(0)
    assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    assert not cuda.cuCtxSetCurrent(context)
    assert not cuda.cuModuleLoadData(ctypes.byref(module), source)
    assert not cuda.cuModuleGetFunction(ctypes.byref(function), module, b"deep")
    launch = ctypes.cast(cuda.cuLaunchKernel, ctypes.c_void_p)
    print(0, 0, flush=True)
    for line in sys.stdin:
        _, *numbers = line.split()
        calls, rounds = (int(n) for n in [*numbers, "0"][:2])
        nanoseconds: list[int] = []

        def bottom(calls: int = calls, rounds: int = rounds, found: list[int] = nanoseconds) -> None:
            found.append(helper.launch_many(launch, function, calls, rounds))

        back = ctypes.CFUNCTYPE(None)(functools.partial(deeper, _PYTHON_FRAMES, bottom))
        deeper(_PYTHON_FRAMES, functools.partial(helper.call_back, back))
        print(nanoseconds[0], calls, flush=True)


def deeper(depth: int, then: Callable[[], None]) -> None:
    if depth:
        deeper(depth - 1, then)
    else:
        then()


if __name__ == "__main__":
    main()
