"""Which calls do few programs make, that change what is in a graph, what is captured and what is allocated?

Says "ready", waits for a line, makes them, and says "phase" with how many slices of virtual memory it still holds.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p, create_string_buffer

SLICE = 2 << 20
KERNELS = [f"k{n}" for n in range(8)]
PTX = "//\n.version 7.0\n.target sm_80\n.address_size 64\n" + "".join(
    f".visible .entry {name}()\n{{\nret;\n}}\n" for name in KERNELS
)
cu = ctypes.CDLL("libcuda.so.1")


def check(code: int) -> None:
    assert code == 0, code


def made(create: object, *arguments: object) -> c_void_p:
    out = c_void_p()
    check(create(byref(out), *arguments))
    return out


def parameters(kernel: c_void_p) -> ctypes.Array:
    """CUDA_KERNEL_NODE_PARAMS_v2."""
    return create_string_buffer(struct.pack("<Q7I", kernel.value, 3, 1, 1, 32, 1, 1, 0), 72)


def child(graph: c_void_p) -> ctypes.Array:
    """CUgraphNodeParams of a child graph."""
    return create_string_buffer(struct.pack("<i12xQ", 4, graph.value), 256)


def graph_of(*kernels: c_void_p) -> tuple[c_void_p, list[c_void_p]]:
    graph = made(cu.cuGraphCreate, 0)
    return graph, [made(cu.cuGraphAddKernelNode_v2, graph, None, c_size_t(0), parameters(k)) for k in kernels]


def launch_graph(graph: c_void_p, times: int) -> c_void_p:
    executable = made(cu.cuGraphInstantiateWithFlags, graph, c_uint64(0))
    for _ in range(times):
        check(cu.cuGraphLaunch(executable, None))
    return executable


def captures(kernels: list[c_void_p]) -> None:
    stream, other = made(cu.cuStreamCreate, 1), made(cu.cuStreamCreate, 1)
    event, graph = made(cu.cuEventCreate, 0), c_void_p()

    def launch(kernel: int, on: c_void_p) -> None:
        check(cu.cuLaunchKernel(kernels[kernel], 1, 1, 1, 32, 1, 1, 0, on, None, None))

    check(cu.cuStreamBeginCapture_v2(stream, 2))
    launch(0, stream)
    check(cu.cuEventRecord(event, stream))
    check(cu.cuStreamWaitEvent(other, event, 0))
    # Not where it was begun: the capture goes on.
    assert cu.cuStreamEndCapture(other, byref(graph)) != 0
    launch(1, stream)
    launch(2, other)
    check(cu.cuStreamEndCapture(stream, byref(graph)))
    launch(1, stream)
    launch_graph(graph, 5)


def edits(kernels: list[c_void_p]) -> None:
    graph, (first, _) = graph_of(kernels[0], kernels[1])
    clone = made(cu.cuGraphClone, graph)
    of_clone = made(cu.cuGraphNodeFindInClone, first, clone)
    check(cu.cuGraphKernelNodeSetParams_v2(of_clone, parameters(kernels[2])))
    launch_graph(clone, 3)
    check(cu.cuGraphDestroyNode(of_clone))
    launch_graph(clone, 2)
    check(cu.cuGraphDestroy(clone))
    # The original's nodes are still its own.
    check(cu.cuGraphKernelNodeSetParams_v2(first, parameters(kernels[3])))
    launch_graph(graph, 2)

    part, other_part = graph_of(kernels[4])[0], graph_of(kernels[5], kernels[6])[0]
    whole = made(cu.cuGraphCreate, 0)
    node = made(cu.cuGraphAddChildGraphNode, whole, None, c_size_t(0), part)
    executable = launch_graph(whole, 2)
    check(cu.cuGraphExecNodeSetParams(executable, node, child(other_part)))
    check(cu.cuGraphLaunch(executable, None))
    check(cu.cuGraphNodeSetParams(node, child(other_part)))
    launch_graph(whole, 2)


def virtual_memory() -> int:
    """Return how many slices are held in the end."""
    properties = (c_int * 8)(1, 1, 1, 0)
    area = c_uint64()
    check(cu.cuMemAddressReserve(byref(area), c_size_t(4 * SLICE), c_size_t(0), c_uint64(0), c_uint64(0)))

    def create(slices: int) -> c_void_p:
        return made(cu.cuMemCreate, c_size_t(slices * SLICE), byref(properties), c_uint64(0))

    def place(at: int, handle: c_void_p, slices: int) -> None:
        size = c_size_t(slices * SLICE)
        check(cu.cuMemMap(c_uint64(area.value + at * SLICE), size, c_size_t(0), handle, c_uint64(0)))

    # Two side by side, unmapped by one call.
    for at in range(2):
        handle = create(1)
        place(at, handle, 1)
        check(cu.cuMemRelease(handle))
    check(cu.cuMemUnmap(area, c_size_t(2 * SLICE)))
    # Memory that comes from elsewhere is not this program's to count.
    kept, descriptor = create(3), c_int()
    check(cu.cuMemExportToShareableHandle(byref(descriptor), kept, 1, c_uint64(0)))
    imported = made(cu.cuMemImportFromShareableHandle, c_void_p(descriptor.value), 1)
    place(0, imported, 3)
    check(cu.cuMemRelease(imported))
    check(cu.cuMemUnmap(area, c_size_t(3 * SLICE)))
    return 3


def listed() -> None:
    """Launch kernels that nobody asked for by name."""
    module = made(cu.cuModuleLoadData, PTX.replace("entry k", "entry listed").encode())
    count = c_uint()
    check(cu.cuModuleGetFunctionCount(byref(count), module))
    found = (c_void_p * count.value)()
    check(cu.cuModuleEnumerateFunctions(found, count, module))
    for times, kernel in enumerate(found, 1):
        check(cu.cuFuncGetName(byref(c_void_p()), c_void_p(kernel)))
        for _ in range(times):
            check(cu.cuLaunchKernel(c_void_p(kernel), 1, 1, 1, 32, 1, 1, 0, None, None, None))


def failures() -> None:
    out = c_void_p()
    assert cu.cuModuleGetFunction(byref(out), None, b"nothing") != 0
    assert cu.cuGraphDestroy(None) != 0
    assert cu.cuCtxCreate_v2(byref(out), c_uint(0), 99) != 0
    assert cu.cuEventElapsedTime(byref(ctypes.c_float()), None, None) != 0


def main() -> None:
    print(json.dumps({"event": "ready"}), flush=True)
    sys.stdin.readline()
    check(cu.cuInit(0))
    check(cu.cuCtxSetCurrent(made(cu.cuDevicePrimaryCtxRetain, 0)))
    module = made(cu.cuModuleLoadData, PTX.encode())
    kernels = [made(cu.cuModuleGetFunction, module, name.encode()) for name in KERNELS]
    captures(kernels)
    edits(kernels)
    listed()
    slices = virtual_memory()
    failures()
    print(json.dumps({"event": "phase", "slices": slices}), flush=True)


if __name__ == "__main__":
    main()
