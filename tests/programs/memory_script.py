"""What does a script of memory calls do to a program? Calls of the driver, one by one, each on the thread that it names.

With the argument `later` it prints "waiting" first, and uses the driver when it is told to; files named behind it it has open by then.
Prints "ready", then for each line on standard input, a JSON list of calls, does them and prints "phase" with what each returned: a
code, and the index of what it made. Allocations, handles and contexts are numbered in the order in which they
were made. Context 0 is the primary one of device 0, context 1 that of device 1.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import queue
import resource
import sys
import threading
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

THREADS = 3
SLICE = 2 << 20
cu = ctypes.CDLL("libcuda.so.1")

contexts: list[c_void_p] = []
pointers: list[int] = []
handles: list[c_uint64] = []
kept: list[mmap.mmap] = []
stream = c_void_p()


PAGEABLE = (ctypes.c_char * (1 << 20))()


class Plane(ctypes.Structure):
    """CUDA_MEMCPY2D, of unified addresses."""

    _fields_ = [
        (side + name, kind)
        for side in ("from_", "to_")
        for name, kind in (
            ("x", c_size_t), ("y", c_size_t), ("type", c_size_t), ("host", c_void_p), ("device", c_uint64),
            ("array", c_void_p), ("pitch", c_size_t),
        )
    ] + [("width", c_size_t), ("height", c_size_t)]  # fmt: skip


class Block(ctypes.Structure):
    """CUDA_MEMCPY3D, of unified addresses."""

    _fields_ = [
        (side + name, kind)
        for side in ("from_", "to_")
        for name, kind in (
            ("x", c_size_t), ("y", c_size_t), ("z", c_size_t), ("level", c_size_t), ("type", c_size_t),
            ("host", c_void_p), ("device", c_uint64), ("array", c_void_p), ("reserved", c_void_p), ("pitch", c_size_t),
            ("height", c_size_t),
        )
    ] + [("width", c_size_t), ("rows", c_size_t), ("depth", c_size_t)]  # fmt: skip


UNIFIED = 4
MAP_FIXED_NOREPLACE = 0x100000


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class Properties(ctypes.Structure):
    """CUmemAllocationProp: pinned memory of one device."""

    _fields_ = [("words", c_int * 4), ("metadata", c_void_p), ("flags", ctypes.c_ubyte * 8)]


def made(code: int, things: list, thing: object) -> tuple[int, int | None]:
    if code:
        return code, None
    things.append(thing)
    return code, len(things) - 1


def allocate(kind: str, size: int) -> tuple[int, int | None]:
    pointer = c_uint64()
    match kind:
        case "device":
            code = cu.cuMemAlloc_v2(byref(pointer), c_size_t(size))
        case "managed":
            code = cu.cuMemAllocManaged(byref(pointer), c_size_t(size), c_uint(1))
        case "host":
            code = cu.cuMemHostAlloc(byref(pointer), c_size_t(size), c_uint(0))
        case "async":
            code = cu.cuMemAllocAsync(byref(pointer), c_size_t(size), None)
        case _:
            memory = mmap.mmap(-1, size)
            kept.append(memory)
            pointer.value = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            code = cu.cuMemHostRegister_v2(pointer, c_size_t(size), c_uint(0))
    return made(code, pointers, pointer.value)


def free(kind: str, index: int) -> tuple[int, None]:
    pointer = c_uint64(pointers[index])
    calls = {
        "device": cu.cuMemFree_v2,
        "managed": cu.cuMemFree_v2,
        "host": cu.cuMemFreeHost,
        "registered": cu.cuMemHostUnregister,
        "async_by_free": cu.cuMemFree_v2,
    }
    return (cu.cuMemFreeAsync(pointer, None) if kind == "async" else calls[kind](pointer)), None


def bogus(_kind: str) -> tuple[int, None]:
    return cu.cuMemFree_v2(c_uint64(0x1234)), None


def create(slices: int) -> tuple[int, int | None]:
    handle = c_uint64()
    properties = Properties((c_int * 4)(1, 0, 1, 0))
    return made(
        cu.cuMemCreate(byref(handle), c_size_t(slices * SLICE), byref(properties), c_uint64(0)), handles, handle
    )


def place(handle: int, slices: int) -> tuple[int, int | None]:
    pointer = c_uint64()
    cu.cuMemAddressReserve(byref(pointer), c_size_t(slices * SLICE), c_size_t(0), c_uint64(0), c_uint64(0))
    code = cu.cuMemMap(pointer, c_size_t(slices * SLICE), c_size_t(0), handles[handle], c_uint64(0))
    return made(code, pointers, pointer.value)


def unmap(pointer: int, slices: int) -> tuple[int, None]:
    return cu.cuMemUnmap(c_uint64(pointers[pointer]), c_size_t(slices * SLICE)), None


def reserve(slices: int) -> tuple[int, int | None]:
    pointer = c_uint64()
    code = cu.cuMemAddressReserve(byref(pointer), c_size_t(slices * SLICE), c_size_t(0), c_uint64(0), c_uint64(0))
    return made(code, pointers, pointer.value)


def fill(pointer: int, first: int, slices: int, parts: int) -> tuple[int, None]:
    """Map a slice at a time, side by side, of so many handles in turn; they end with their mappings."""
    properties = Properties((c_int * 4)(1, 0, 1, 0))
    own = [c_uint64() for _ in range(parts)]
    code = 0
    for handle in own:
        code |= cu.cuMemCreate(byref(handle), c_size_t(SLICE), byref(properties), c_uint64(0))
    for n in range(slices):
        at = c_uint64(pointers[pointer] + (first + n) * SLICE)
        code |= cu.cuMemMap(at, c_size_t(SLICE), c_size_t(0), own[n % parts], c_uint64(0))
    for handle in own:
        code |= cu.cuMemRelease(handle)
    return code, None


def unmap_range(pointer: int, first: int, slices: int) -> tuple[int, None]:
    return cu.cuMemUnmap(c_uint64(pointers[pointer] + first * SLICE), c_size_t(slices * SLICE)), None


def address_of(which: int | str, offset: int) -> c_uint64:
    """Return an address inside what was allocated, or inside pageable memory."""
    at = ctypes.addressof(PAGEABLE) if which == "pageable" else pointers[which]
    return c_uint64(at + offset)


def copy(how: str, to: int | str, to_offset: int, from_: int | str, from_offset: int, size: int) -> tuple[int, None]:
    """Copy without saying from where to where."""
    target, source, count = address_of(to, to_offset), address_of(from_, from_offset), c_size_t(size)
    sides = {"from_type": UNIFIED, "from_device": source.value, "to_type": UNIFIED, "to_device": target.value}
    match how:
        case "blocking":
            code = cu.cuMemcpy(target, source, count)
        case "async":
            code = cu.cuMemcpyAsync(target, source, count, None)
        case "batch":
            code = cu.cuMemcpyBatchAsync_v2(
                byref(target), byref(source), byref(count), c_size_t(1), None, None, c_size_t(0), stream
            )
        case "2d":
            code = cu.cuMemcpy2D_v2(byref(Plane(**sides, from_pitch=size, to_pitch=size, width=size, height=1)))
        case _:
            code = cu.cuMemcpy3D_v2(byref(Block(**sides, from_pitch=size, to_pitch=size, width=size, rows=1, depth=1)))
    return code, None


def map_host(which: int, size: int) -> tuple[int, None]:
    """Have pageable memory where something was that is freed, if there is none yet."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = c_void_p
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    at = libc.mmap(c_void_p(pointers[which]), c_size_t(size), protection, flags, -1, ctypes.c_long(0))
    return 0 if at == pointers[which] or ctypes.get_errno() == errno.EEXIST else ctypes.get_errno(), None


def used() -> tuple[int, int]:
    """Return how many slices of the device are in use, as the driver counts."""
    free_bytes, total = c_size_t(), c_size_t()
    code = cu.cuMemGetInfo_v2(byref(free_bytes), byref(total))
    return code, (total.value - free_bytes.value) // SLICE


def captured() -> tuple[int, None]:
    """Have memory allocated by a graph's node."""
    graph, pointer = c_void_p(), c_uint64()
    code = cu.cuStreamBeginCapture_v2(stream, c_uint(0))
    code |= cu.cuMemAllocAsync(byref(pointer), c_size_t(SLICE), stream)
    return code | cu.cuStreamEndCapture(stream, byref(graph)), None


def share(pointer: int) -> tuple[int, None]:
    """Open a handle of memory as if it were another process's."""
    handle, opened = (ctypes.c_ubyte * 64)(), c_uint64()
    code = cu.cuIpcGetMemHandle(handle, c_uint64(pointers[pointer]))
    return code | cu.cuIpcOpenMemHandle_v2(byref(opened), IpcHandle.from_buffer(handle), c_uint(1)), None


def retain(pointer: int) -> tuple[int, int | None]:
    handle = c_uint64()
    return made(cu.cuMemRetainAllocationHandle(byref(handle), c_uint64(pointers[pointer])), handles, handle)


def release(handle: int) -> tuple[int, None]:
    return cu.cuMemRelease(handles[handle]), None


def enter(context: int) -> tuple[int, None]:
    return cu.cuCtxSetCurrent(contexts[context]), None


def new_context(device: int) -> tuple[int, int | None]:
    context = c_void_p()
    return made(cu.cuCtxCreate_v2(byref(context), c_uint(0), c_int(device)), contexts, context)


def end_context(context: int) -> tuple[int, None]:
    return cu.cuCtxDestroy_v2(contexts[context]), None


def retain_primary(device: int) -> tuple[int, None]:
    return cu.cuDevicePrimaryCtxRetain(byref(c_void_p()), c_int(device)), None


def release_primary(device: int) -> tuple[int, None]:
    return cu.cuDevicePrimaryCtxRelease_v2(c_int(device)), None


def reset(device: int) -> tuple[int, None]:
    return cu.cuDevicePrimaryCtxReset_v2(c_int(device)), None


CALLS: dict[str, Callable[..., tuple[int, int | None]]] = {
    f.__name__: f
    for f in (
        allocate, free, bogus, create, place, unmap, retain, release, enter, new_context, end_context, reset,
        retain_primary, release_primary, reserve, fill, unmap_range, used, copy, captured,
        map_host, share,
    )
}  # fmt: skip


class Worker(threading.Thread):
    """A thread with a context of its own choice."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.asked: queue.Queue[tuple[str, list]] = queue.Queue()
        self.answers: queue.Queue[tuple[int, int | None]] = queue.Queue()
        self.start()

    def run(self) -> None:
        cu.cuCtxSetCurrent(contexts[0])
        while True:
            name, arguments = self.asked.get()
            self.answers.put(CALLS[name](*arguments))

    def do(self, name: str, arguments: list) -> tuple[int, int | None]:
        self.asked.put((name, arguments))
        return self.answers.get()


def main() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    if sys.argv[1:2] == ["later"]:
        for path in sys.argv[2:]:
            os.open(path, os.O_RDONLY)
        print(json.dumps({"event": "waiting"}), flush=True)
        sys.stdin.readline()
    assert cu.cuInit(0) == 0
    for device in range(2):
        context = c_void_p()
        assert cu.cuDevicePrimaryCtxRetain(byref(context), device) == 0
        contexts.append(context)
    cu.cuCtxSetCurrent(contexts[0])
    assert cu.cuStreamCreate(byref(stream), 0) == 0
    workers = [Worker() for _ in range(THREADS)]
    print(json.dumps({"event": "ready", "pid": os.getpid()}), flush=True)
    for line in sys.stdin:
        did = [workers[thread].do(name, arguments) for thread, name, *arguments in json.loads(line)]
        print(json.dumps({"event": "phase", "did": did}), flush=True)


if __name__ == "__main__":
    main()
