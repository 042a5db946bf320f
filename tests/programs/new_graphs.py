"""What do graphs execute of which the device decides? Conditional bodies, and graphs for the device to launch.

Says "ready", and at a line on standard input builds the graph that its argument names, launches it 3 times and says "phase". A graph
has the kernel `outside`; bodies of a condition have `inside`, the second one `otherwise`.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

KINDS = {"if": 0, "while": 1, "switch": 2}
DEFAULT_VALUE = 1  # CU_GRAPH_COND_ASSIGN_DEFAULT
DEVICE_LAUNCH = 4  # CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH
NAMES = ("outside", "inside", "otherwise")
IMAGE = b".version 8.0\n.target sm_90\n.address_size 64\n" + b"".join(
    b".visible .entry %s()\n{ ret; }\n" % name.encode() for name in NAMES
)
cu = ctypes.CDLL("libcuda.so.1")


class Kernel(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("function", c_void_p), ("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint), ("parameters", c_void_p),
        ("extra", c_void_p), ("kernel", c_void_p), ("context", c_void_p),
    ]  # fmt: skip


class Condition(ctypes.Structure):
    """CUDA_CONDITIONAL_NODE_PARAMS."""

    _fields_ = [
        ("handle", c_uint64), ("kind", c_int), ("size", c_uint), ("bodies", ctypes.POINTER(c_void_p)), ("context", c_void_p),
    ]  # fmt: skip


class Node(ctypes.Structure):
    """CUgraphNodeParams."""

    class _Union(ctypes.Union):
        _fields_ = [("kernel", Kernel), ("condition", Condition), ("bytes", ctypes.c_byte * 232)]

    _fields_ = [("type", c_int), ("reserved", c_int * 3), ("of", _Union), ("end", c_uint64)]


class Instantiation(ctypes.Structure):
    """CUDA_GRAPH_INSTANTIATE_PARAMS."""

    _fields_ = [("flags", c_uint64), ("stream", c_void_p), ("failed", c_void_p), ("result", c_int)]


def check(code: int) -> None:
    assert code == 0, code


def add(graph: c_void_p, node: Node) -> None:
    check(cu.cuGraphAddNode_v2(byref(c_void_p()), graph, None, None, c_size_t(0), byref(node)))


def add_kernel(graph: c_void_p, function: c_void_p) -> None:
    node = Node(type=0)
    node.of.kernel = Kernel(function=function.value, grid=(1, 1, 1), block=(32, 1, 1))
    add(graph, node)


def add_condition(graph: c_void_p, kind: str, value: int, size: int, context: c_void_p) -> list[c_void_p]:
    """Return the bodies; `value` chooses among them at each launch, and says how often a loop runs."""
    handle = c_uint64()
    check(cu.cuGraphConditionalHandleCreate(byref(handle), graph, context, c_uint(value), c_uint(DEFAULT_VALUE)))
    node = Node(type=13)
    node.of.condition = Condition(handle=handle.value, kind=KINDS[kind], size=size, context=context.value)
    add(graph, node)
    return [c_void_p(node.of.condition.bodies[i]) for i in range(size)]


def create() -> c_void_p:
    graph = c_void_p()
    check(cu.cuGraphCreate(byref(graph), 0))
    return graph


def instantiate(graph: c_void_p, how: str, flags: int) -> c_void_p:
    made = c_void_p()
    if how == "params":
        check(cu.cuGraphInstantiateWithParams(byref(made), graph, byref(Instantiation(flags=flags))))
    else:
        check(cu.cuGraphInstantiateWithFlags(byref(made), graph, c_uint64(flags)))
    return made


def main() -> None:
    what = sys.argv[1]
    context, module, stream = (c_void_p() for _ in range(3))
    functions = [c_void_p() for _ in NAMES]
    check(cu.cuInit(0))
    check(cu.cuDevicePrimaryCtxRetain(byref(context), 0))
    check(cu.cuCtxSetCurrent(context))
    check(cu.cuStreamCreate(byref(stream), 1))
    print('{"event": "ready"}', flush=True)
    sys.stdin.readline()
    check(cu.cuModuleLoadData(byref(module), IMAGE))
    for function, name in zip(functions, NAMES, strict=True):
        check(cu.cuModuleGetFunction(byref(function), module, name.encode()))
    outside, inside, otherwise = functions
    graph = create()
    add_kernel(graph, outside)
    match what:
        case "if":
            first, second = add_condition(graph, "if", 0, 2, context)
            add_kernel(first, inside)
            add_kernel(second, otherwise)
        case "while":
            (body,) = add_condition(graph, "while", 5, 1, context)
            check(cu.cuStreamBeginCaptureToGraph(stream, body, None, None, c_size_t(0), 0))
            check(cu.cuLaunchKernel(inside, 1, 1, 1, 32, 1, 1, 0, stream, None, None))
            check(cu.cuStreamEndCapture(stream, byref(c_void_p())))
        case "switch":
            bodies = add_condition(graph, "switch", 2, 3, context)
            for body, function in zip(bodies, (inside, inside, otherwise), strict=True):
                add_kernel(body, function)
            # One in the other.
            (loop,) = add_condition(bodies[2], "while", 2, 1, context)
            add_kernel(loop, inside)
    if what in ("flags", "params"):
        # Never launched by the host.
        instantiate(graph, what, DEVICE_LAUNCH)
    if what == "reused":
        (body,) = add_condition(graph, "if", 1, 1, context)
        add_kernel(body, inside)
        # The driver gives the handles of what was freed to the next graphs, the last one first: the body's to the second.
        check(cu.cuGraphDestroy(graph))
        graph = [create() for _ in range(2)][1]
        assert graph.value == body.value
        add_kernel(graph, outside)
    made = instantiate(graph, what, 0)
    for _ in range(3):
        check(cu.cuGraphLaunch(made, stream))
    print('{"event": "phase"}', flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
