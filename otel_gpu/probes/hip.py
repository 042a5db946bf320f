"""Which functions of AMD's HIP runtime are probed, and what does each measure?

One row a function, as hip_runtime_api.h declares it. HIP's functions have the shapes of CUDA's, so the same programs
count them; `KIND_HIP` in the cookie tells their rows apart. There is one layer only: programs call libamdhip64 whether
they launch by host function (hipLaunchKernel) or by module (hipModuleLaunchKernel).

Inside the library (ROCm 5.2) some functions call others through their exported names: hipMemcpyPeer hipMemcpy,
hipMemcpyPeerAsync and the Symbol copies hipMemcpyAsync, hipMemAllocHost hipHostMalloc, hipMemAllocPitch hipMallocPitch.
Such pairs count as one function (`counts_as`), so that one call is counted once whether they do so or not. hipLaunchByPtr
is left out for that reason. Left out as well are hipDrvMemcpy3D, whose structure changed between ROCm 5 and 6, the copies of
batches and between devices that are told by other structures (hipMemcpyBatchAsync, hipMemcpy3DPeer), hipMemcpy2DArrayToArray
and the memory of arrays, whose sizes lie in elements: CUDA's arrays are not counted either.

Limits: nodes added by hipGraphAddMemcpyNode1D and for symbols are not known; after hipGraphExecChildGraphNodeSetParams of
ROCm 5.2, which calls hipGraphExecUpdate with the child, a graph is taken for that child. A context that was made before
the probes were there (hipCtxSetCurrent, deprecated) counts as the first device.
"""

from __future__ import annotations

import dataclasses

from ..bpf.abi.cookies import (
    CALL_DESTROYS_EXEC,
    CALL_ENDS_CAPTURE,
    CALL_UNLOADS,
    FLAG_DIRECT,
    FLAG_EXEC,
    FLAG_INNER,
    FLAG_PITCHED,
    FLAG_PUSH,
)
from ..bpf.abi.rows import KIND_HIP, CopyKind, Family, MemoryType
from . import shapes
from .hook import Hook

_STREAM = ("", "_spt")
_GRID = "unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz"
_COPY_TO = "void *to, const void *from, size_t bytes"
_ROWS_TO = "void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind"
_ROWS_TO_ARRAY = "void *to, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height, int kind"
_ROWS_FROM_ARRAY = "void *to, size_t pitch, void *from, size_t x, size_t y, size_t width, size_t height, int kind"
_THREADS = (
    f"(void *function, {_GRID}, size_t shared, void *stream, void **params, void **extra, void *start, void *stop, "
    "unsigned flags)"
)


def _hook(
    prototype: str,
    family: Family | None,
    program: str,
    return_program: str | None = None,
    *,
    kind: int = 0,
    **more: object,
) -> Hook:
    return Hook(prototype, family, program, return_program, kind=kind | KIND_HIP, **more)  # type: ignore[arg-type]


def _launch(prototype: str, program: str, **more: object) -> Hook:
    stream = "stream" if "stream" in prototype else None
    return _hook(prototype, Family.LAUNCH, program, stream=stream, **{"variants": _STREAM} | more)  # type: ignore[arg-type]


def _copy(prototype: str, kind: CopyKind | None = None, **more: object) -> Hook:
    """Return the row of a copy; without a kind it is the program's own argument, which says where the host is."""
    is_async = "stream" in prototype
    meaning: dict[str, object] = {
        "size": "bytes" if "bytes" in prototype else "width",
        "size2": "height" if "height" in prototype else None,
        "stream": "stream" if is_async else None,
        "variants": _STREAM,
    }
    if kind is None:
        meaning["kind_at"] = "kind"
        meaning["host"] = "from" if "const void *from" in prototype else None
        meaning["out"] = "to" if "void *to" in prototype else None
    else:
        meaning["kind"] = kind
    program, return_program = ("copy_linear_async", None) if is_async else ("copy_linear", "copy_done")
    return _hook(prototype, Family.COPY, program, return_program, **meaning | more)  # type: ignore[arg-type]


def _copy_outer(prototype: str, kind: CopyKind | None = None) -> Hook:
    """Return the row of an asynchronous copy that may be handed on to hipMemcpyAsync."""
    hook = _copy(prototype, kind, counts_as="hipMemcpyAsync")
    return dataclasses.replace(hook, program="copy_outer", return_program="copy_outer_done")


def _copy_struct(prototype: str, shape: str, kind: int = 0) -> Hook:
    if "stream" in prototype:
        return _hook(
            prototype, Family.COPY, f"copy_{shape}_async", kind=kind, stream="stream", size="copy", variants=_STREAM
        )
    return _hook(prototype, Family.COPY, f"copy_{shape}", "copy_done", kind=kind, size="copy", variants=_STREAM)


def _hip(hook: Hook) -> Hook:
    """Return the row of a shape that CUDA has too, as one of HIP's."""
    return dataclasses.replace(hook, kind=hook.kind | KIND_HIP)


def _fill(prototype: str, shift: int = 0) -> Hook:
    return _hip(shapes.fill(prototype, shift, _STREAM))


def _alloc(prototype: str, kind: MemoryType, **more: object) -> Hook:
    return _hip(shapes.alloc(prototype, kind, **more))


def _free(prototype: str, **more: object) -> Hook:
    return _hip(shapes.free(prototype, **more))


def _handle(prototype: str, return_program: str, **more: str) -> Hook:
    return _hip(shapes.handle(prototype, return_program, **more))


def _call(prototype: str, *, data: str | None = None, **more: object) -> Hook:
    return _hip(shapes.call(prototype, data=data, **more))


def _wait(prototype: str) -> Hook:
    return _hip(shapes.wait(prototype, variants=_STREAM))


HIP: tuple[Hook, ...] = (
    _launch("hipLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared, void *stream)", "launch_dim3"),
    _launch("hipLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **args, unsigned shared, void *stream)", "launch_dim3"),
    _launch("hipExtLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared, void *stream, void *start, void *stop, int flags)", "launch_dim3"),
    _launch(f"hipModuleLaunchKernel(void *function, {_GRID}, unsigned shared, void *stream, void **params, void **extra)", "launch_kernel"),
    _launch(f"hipModuleLaunchCooperativeKernel(void *function, {_GRID}, unsigned shared, void *stream, void **params)", "launch_kernel"),
    _launch("hipExtModuleLaunchKernel" + _THREADS, "launch_threads"),
    # The same as C++ exports it.
    _launch(
        "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j" + _THREADS,
        "launch_threads", counts_as="hipExtModuleLaunchKernel", variants=("",),
    ),
    _launch("hipLaunchKernelExC(const void *config, const void *function, void **args)", "launch_kernel_ex"),
    _launch("hipDrvLaunchKernelEx(const void *config, void *function, void **params, void **extra)", "launch_kernel_ex"),
    _launch("hipLaunchCooperativeKernelMultiDevice(void *list, int n, unsigned flags)", "launch_multi_device"),
    _launch("hipExtLaunchMultiKernelMultiDevice(void *list, int n, unsigned flags)", "launch_multi_device"),
    _launch("hipModuleLaunchCooperativeKernelMultiDevice(void *list, unsigned n, unsigned flags)", "launch_multi_device"),
    _hook("hipGraphLaunch(void *exec, void *stream)", Family.GRAPH_LAUNCH, "launch_graph", stream="stream", variants=_STREAM),
    # Copies whose kind is an argument.
    _copy(f"hipMemcpy({_COPY_TO}, int kind)", flags=FLAG_INNER),
    _copy(f"hipMemcpyAsync({_COPY_TO}, int kind, void *stream)", flags=FLAG_INNER),
    # It blocks, for all that it names a stream.
    _hook(
        f"hipMemcpyWithStream({_COPY_TO}, int kind, void *stream)",
        Family.COPY, "copy_linear", "copy_done", kind_at="kind", host="from", out="to", size="bytes",
    ),
    _copy("hipMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, int kind)"),
    _copy("hipMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, int kind)"),
    _copy_outer("hipMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes, size_t offset, int kind, void *stream)"),
    _copy_outer("hipMemcpyFromSymbolAsync(void *to, const void *symbol, size_t bytes, size_t offset, int kind, void *stream)"),
    _copy(f"hipMemcpy2D({_ROWS_TO})"),
    _copy(f"hipMemcpy2DAsync({_ROWS_TO}, void *stream)"),
    _copy(f"hipMemcpy2DToArray({_ROWS_TO_ARRAY})", out=None),
    _copy(f"hipMemcpy2DToArrayAsync({_ROWS_TO_ARRAY}, void *stream)", out=None),
    _copy(f"hipMemcpy2DFromArray({_ROWS_FROM_ARRAY})"),
    _copy(f"hipMemcpy2DFromArrayAsync({_ROWS_FROM_ARRAY}, void *stream)"),
    _copy("hipMemcpyToArray(void *to, size_t x, size_t y, const void *from, size_t bytes, int kind)", out=None),
    _copy("hipMemcpyFromArray(void *to, void *from, size_t x, size_t y, size_t bytes, int kind)"),
    # Copies of one kind.
    _copy("hipMemcpyHtoD(u64 to, const void *from, size_t bytes)", CopyKind.HOST_TO_DEVICE, host="from"),
    _copy("hipMemcpyDtoH(void *to, u64 from, size_t bytes)", CopyKind.DEVICE_TO_HOST, host="to"),
    _copy("hipMemcpyDtoD(u64 to, u64 from, size_t bytes)", CopyKind.DEVICE_TO_DEVICE),
    _copy("hipMemcpyHtoA(void *array, size_t offset, const void *from, size_t bytes)", CopyKind.HOST_TO_DEVICE, host="from"),
    _copy("hipMemcpyAtoH(void *to, void *array, size_t offset, size_t bytes)", CopyKind.DEVICE_TO_HOST, host="to"),
    _copy("hipMemcpyDtoA(void *array, size_t offset, u64 from, size_t bytes)", CopyKind.DEVICE_TO_DEVICE),
    _copy("hipMemcpyAtoD(u64 to, void *array, size_t offset, size_t bytes)", CopyKind.DEVICE_TO_DEVICE),
    _copy("hipMemcpyAtoA(void *array, size_t offset, void *other, size_t start, size_t bytes)", CopyKind.DEVICE_TO_DEVICE),
    _copy("hipMemcpyHtoAAsync(void *array, size_t offset, const void *from, size_t bytes, void *stream)", CopyKind.HOST_TO_DEVICE, host="from"),
    _copy("hipMemcpyAtoHAsync(void *to, void *array, size_t offset, size_t bytes, void *stream)", CopyKind.DEVICE_TO_HOST, host="to"),
    _copy("hipMemcpyHtoDAsync(u64 to, const void *from, size_t bytes, void *stream)", CopyKind.HOST_TO_DEVICE, host="from"),
    _copy("hipMemcpyDtoHAsync(void *to, u64 from, size_t bytes, void *stream)", CopyKind.DEVICE_TO_HOST, host="to"),
    _copy("hipMemcpyDtoDAsync(u64 to, u64 from, size_t bytes, void *stream)", CopyKind.DEVICE_TO_DEVICE),
    _copy("hipMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes)", CopyKind.PEER, counts_as="hipMemcpy"),
    _copy_outer("hipMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, void *stream)", CopyKind.PEER),
    # Copies told by a structure. That of two dimensions numbers its sides as HIP 5 or as HIP 6 did: they are not told apart.
    _copy_struct("hipMemcpyParam2D(const void *copy)", "2d", CopyKind.DEFAULT),
    _copy_struct("hipMemcpyParam2DAsync(const void *copy, void *stream)", "2d", CopyKind.DEFAULT),
    _copy_struct("hipDrvMemcpy2DUnaligned(const void *copy)", "2d", CopyKind.DEFAULT),
    _copy_struct("hipMemcpy3D(const void *copy)", "parms"),
    _copy_struct("hipMemcpy3DAsync(const void *copy, void *stream)", "parms"),
    # Memsets.
    _fill("hipMemset(void *to, int value, size_t n)"),
    _fill("hipMemsetAsync(void *to, int value, size_t n, void *stream)"),
    _fill("hipMemset2D(void *to, size_t pitch, int value, size_t width, size_t height)"),
    _fill("hipMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, void *stream)"),
    *(
        _hook(prototype, Family.MEMSET, "fill_extent", stream="stream" if "stream" in prototype else None, variants=_STREAM)
        for prototype in (
            "hipMemset3D(hipPitchedPtr to, int value, hipExtent extent)",
            "hipMemset3DAsync(hipPitchedPtr to, int value, hipExtent extent, void *stream)",
        )
    ),
    *(
        _fill(f"hipMemsetD2D{bits}{is_async}(u64 to, size_t pitch, unsigned {kind} value, size_t width, size_t height{stream})", shift)
        for bits, kind, shift in ((8, "char", 0), (16, "short", 1), (32, "int", 2))
        for is_async, stream in (("", ""), ("Async", ", void *stream"))
    ),
    _fill("hipMemsetD8(u64 to, unsigned char value, size_t n)"),
    _fill("hipMemsetD8Async(u64 to, unsigned char value, size_t n, void *stream)"),
    _fill("hipMemsetD16(u64 to, unsigned short value, size_t n)", 1),
    _fill("hipMemsetD16Async(u64 to, unsigned short value, size_t n, void *stream)", 1),
    _fill("hipMemsetD32(u64 to, int value, size_t n)", 2),
    _fill("hipMemsetD32Async(u64 to, int value, size_t n, void *stream)", 2),
    # Memory.
    _alloc("hipMalloc(void **out, size_t bytes)", MemoryType.DEVICE),
    _alloc("hipExtMallocWithFlags(void **out, size_t bytes, unsigned flags)", MemoryType.DEVICE),
    _alloc("hipMallocPitch(void **out, size_t *pitch, size_t width, size_t height)", MemoryType.DEVICE, size="height", size2="pitch", flags=FLAG_PITCHED),
    _alloc(
        "hipMemAllocPitch(u64 *out, size_t *pitch, size_t width, size_t height, unsigned element)",
        MemoryType.DEVICE, size="height", size2="pitch", flags=FLAG_PITCHED, counts_as="hipMallocPitch",
    ),
    _hook(
        "hipMalloc3D(hipPitchedPtr *out, hipExtent extent)",
        Family.ALLOC, "alloc_extent", "alloc_done", kind=MemoryType.DEVICE, out="out", flags=FLAG_PITCHED,
    ),
    _alloc("hipMallocManaged(void **out, size_t bytes, unsigned flags)", MemoryType.MANAGED),
    _alloc("hipHostMalloc(void **out, size_t bytes, unsigned flags)", MemoryType.HOST),
    _alloc("hipMemAllocHost(void **out, size_t bytes)", MemoryType.HOST, counts_as="hipHostMalloc"),
    _alloc("hipMallocHost(void **out, size_t bytes)", MemoryType.HOST),
    _alloc("hipHostAlloc(void **out, size_t bytes, unsigned flags)", MemoryType.HOST),
    _alloc("hipHostRegister(void *out, size_t bytes, unsigned flags)", MemoryType.REGISTERED, flags=FLAG_DIRECT),
    _alloc("hipMallocAsync(void **out, size_t bytes, void *stream)", MemoryType.ASYNC, stream="stream"),
    _alloc("hipMallocFromPoolAsync(void **out, size_t bytes, void *pool, void *stream)", MemoryType.ASYNC, stream="stream"),
    _alloc("hipMemCreate(void **out, size_t bytes, const void *properties, u64 flags)", MemoryType.VIRTUAL, size2="properties"),
    _free("hipFree(void *address)"),
    _free("hipFreeHost(void *address)"),
    _free("hipHostFree(void *address)"),
    _free("hipHostUnregister(void *address)"),
    _free("hipFreeAsync(void *address, void *stream)", stream="stream"),
    _handle("hipMemRelease(void *handle)", "handle_released", out="handle"),
    _handle("hipMemRetainAllocationHandle(void **out, void *address)", "handle_retained", out="out"),
    _handle("hipMemMap(void *address, size_t size, size_t offset, void *handle, u64 flags)", "handle_mapped", out="address", size="handle", size2="size"),
    _handle("hipMemUnmap(void *address, size_t size)", "handle_unmapped", out="address", size="size"),
    # What copies must know to tell host and device apart.
    _hook("hipModuleGetGlobal(void **out, size_t *bytes, void *module, const char *name)", None, "handle_call", "global_found", out="out", size="bytes"),
    _hook("hipMemPoolCreate(void **out, const void *location)", None, "memory_placed", size="location", shift=8),
    *(
        _hook(prototype, None, "memory_hidden")
        for prototype in (
            "hipGetSymbolAddress(void **out, const void *symbol)",
            "hipIpcOpenMemHandle(void **out, hipIpcMemHandle_t handle, unsigned flags)",
            "hipMemPoolImportPointer(void **out, void *pool, void *data)",
            "hipExternalMemoryGetMappedBuffer(void **out, void *memory, const void *description)",
            "hipGraphicsResourceGetMappedPointer(void **out, size_t *size, void *resource)",
            "hipGraphAddMemAllocNode(void **out, void *graph, const void *dependencies, size_t n, void *params)",
        )
    ),
    # Waiting.
    _wait("hipStreamSynchronize(void *stream)"),
    _wait("hipEventSynchronize(void *event)"),
    _wait("hipDeviceSynchronize(void)"),
    _wait("hipCtxSynchronize(void)"),
    # Stream capture.
    _hook("hipStreamBeginCapture(void *stream, int mode)", None, "capture_begin", "capture_begun", stream="stream", variants=_STREAM),
    _hook(
        "hipStreamBeginCaptureToGraph(void *stream, void *graph, const void *nodes, const void *edges, size_t n, int mode)",
        None, "capture_begin", "capture_begun", stream="stream", variants=_STREAM,
    ),
    _call("hipStreamEndCapture(void *stream, void **out)", kind=CALL_ENDS_CAPTURE, stream="stream", variants=_STREAM),
    _hook("hipEventRecord(void *event, void *stream)", None, "event_record", stream="stream", variants=_STREAM),
    _hook("hipEventRecordWithFlags(void *event, void *stream, unsigned flags)", None, "event_record", stream="stream", variants=_STREAM),
    _hook("hipStreamWaitEvent(void *stream, void *event, unsigned flags)", None, "stream_wait_event", stream="stream", variants=_STREAM),
    # Names.
    _hook("hipModuleGetFunction(void **out, void *module, const char *name)", None, "name", "named", out="out"),
    _call("hipModuleUnload(void *module)", kind=CALL_UNLOADS),
    # Graphs: what is in them.
    _call("hipGraphAddKernelNode(void **out, void *graph, const void *dependencies, size_t n, const void *params)", data="params"),
    _call("hipGraphAddMemcpyNode(void **out, void *graph, const void *dependencies, size_t n, const void *params)", data="params"),
    _call("hipGraphAddMemsetNode(void **out, void *graph, const void *dependencies, size_t n, const void *params)", data="params"),
    _call("hipGraphAddChildGraphNode(void **out, void *graph, const void *dependencies, size_t n, void *child)"),
    _call("hipGraphClone(void **out, void *graph)"),
    _call("hipGraphDestroyNode(void *node)"),
    _call("hipGraphDestroy(void *graph)"),
    _call("hipGraphInstantiate(void **out, void *graph, void **failed, char *log, size_t size)", flags=FLAG_EXEC),
    _call("hipGraphInstantiateWithFlags(void **out, void *graph, u64 flags)", flags=FLAG_EXEC),
    _call("hipGraphInstantiateWithParams(void **out, void *graph, void *params)", flags=FLAG_EXEC),
    _call("hipGraphExecUpdate(void *exec, void *graph, void **failed, void *result)", flags=FLAG_EXEC),
    _call("hipGraphExecChildGraphNodeSetParams(void *exec, void *node, void *child)", flags=FLAG_EXEC),
    _call("hipGraphNodeSetEnabled(void *exec, void *node, unsigned enabled)", flags=FLAG_EXEC),
    _call("hipGraphExecDestroy(void *exec)", kind=CALL_DESTROYS_EXEC),
    # Devices.
    _hook("hipSetDevice(int device)", None, "device_set", "device_is_set"),
    _call("hipDeviceReset(void)"),
    *(
        _hook(prototype, None, "context", "context_made", out="out", size="device", flags=flags)
        for prototype, flags in (
            ("hipCtxCreate(void **out, unsigned flags, int device)", FLAG_PUSH),
            ("hipDevicePrimaryCtxRetain(void **out, int device)", 0),
        )
    ),
    _hook("hipCtxSetCurrent(void *context)", None, "context_set"),
    _hook("hipCtxPushCurrent(void *context)", None, "context_set", flags=FLAG_PUSH),
    _hook("hipCtxPopCurrent(void **context)", None, "context_pop"),
)  # fmt: skip
