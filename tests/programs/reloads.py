"""What does a program do that loads modules and unloads them, so that handles become those of other kernels?

Says "ready" when a kernel is loaded that it launches and unloads first; for each line that it is given it does another round of loads, launches and unloads, and says "phase".
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from ctypes import byref, c_uint64, c_void_p

cu = ctypes.CDLL("libcuda.so.1")
ROUNDS = 40
PAUSE_S = 0.02
"""So that nothing is dropped on a slow machine."""
LONG = "long_" * 900


def check(code: int) -> None:
    assert code == 0, code


def made(create: object, *arguments: object) -> c_void_p:
    out = c_void_p()
    check(create(byref(out), *arguments))
    return out


def image(names: list[str]) -> bytes:
    entries = "".join(f".visible .entry {name}()\n{{\nret;\n}}\n" for name in names)
    return f"//\n.version 7.0\n.target sm_80\n.address_size 64\n{entries}".encode()


def launch(kernel: c_void_p, times: int, stream: c_void_p | None = None) -> None:
    for _ in range(times):
        check(cu.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, None, None))


def modules(number: int) -> None:
    names = [f"k{number}_a", f"k{number}_b"]
    if number % 10 == 0:
        names.append(f"{LONG}{number}")
    module = made(cu.cuModuleLoadData, image(names))
    for times, name in enumerate(names, 1):
        kernel = made(cu.cuModuleGetFunction, module, name.encode())
        assert made(cu.cuModuleGetFunction, module, name.encode()).value == kernel.value
        launch(kernel, number + times)
    check(cu.cuModuleUnload(module))


def libraries(number: int) -> None:
    name = f"l{number}"
    library = made(cu.cuLibraryLoadData, image([name]), None, None, 0, None, None, 0)
    kernel = made(cu.cuLibraryGetKernel, library, name.encode())
    launch(made(cu.cuKernelGetFunction, kernel), number + 1)
    check(cu.cuLibraryUnload(library))


def graph(number: int, stream: c_void_p) -> None:
    name = f"g{number}"
    module = made(cu.cuModuleLoadData, image([name]))
    kernel = made(cu.cuModuleGetFunction, module, name.encode())
    check(cu.cuStreamBeginCapture_v2(stream, 0))
    launch(kernel, 2, stream)
    captured = c_void_p()
    check(cu.cuStreamEndCapture(stream, byref(captured)))
    executable = made(cu.cuGraphInstantiateWithFlags, captured, c_uint64(0))
    for _ in range(number + 1):
        check(cu.cuGraphLaunch(executable, stream))
    check(cu.cuGraphExecDestroy(executable))
    check(cu.cuModuleUnload(module))


def main() -> None:
    check(cu.cuInit(0))
    check(cu.cuCtxSetCurrent(made(cu.cuDevicePrimaryCtxRetain, 0)))
    stream = made(cu.cuStreamCreate, 1)
    kept = made(cu.cuModuleLoadData, image(["kept"]))
    of_kept = made(cu.cuModuleGetFunction, kept, b"kept")
    print(json.dumps({"event": "ready"}), flush=True)
    for phase, _ in enumerate(sys.stdin):
        if phase == 0:
            launch(of_kept, 7)
            check(cu.cuModuleUnload(kept))
        for number in range(phase * ROUNDS, (phase + 1) * ROUNDS):
            modules(number)
            libraries(number)
            graph(number, stream)
            time.sleep(PAUSE_S)
        print(json.dumps({"event": "phase"}), flush=True)


if __name__ == "__main__":
    main()
