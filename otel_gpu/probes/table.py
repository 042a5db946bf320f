"""Which functions of the CUDA driver are probed, and what does each measure?

One row a function: its C prototype, as cuda.h declares it, and what the parameters mean.
"""

from __future__ import annotations

import re

from ..bpf.abi.cookies import (
    CALL_ADDS_NODE,
    CALL_ALIASES,
    CALL_DESTROYS_EXEC,
    CALL_DESTROYS_GREEN,
    CALL_ENDS_CAPTURE,
    CALL_RELEASES_PRIMARY,
    CALL_RESETS_PRIMARY,
    CALL_UNLOADS,
    CONTEXT_GREEN,
    FLAG_DIRECT,
    FLAG_EXEC,
    FLAG_PITCHED,
    FLAG_PUSH,
    FLAG_RESULT,
    WaitKind,
)
from ..bpf.abi.rows import CopyKind, Family, MemoryType
from ..discovery.libraries import LibraryKind
from . import shapes
from .counted import Counted
from .hip import HIP
from .hook import Hook, programs_of

_STREAM = ("", "_ptsz")
_BLOCKING = ("", "_ptds")


def _launch(prototype: str, program: str, **more: object) -> Hook:
    return Hook(prototype, Family.LAUNCH, program, stream="stream", variants=_STREAM, **more)  # type: ignore[arg-type]


_TO_BE_FOUND_OUT = {"kind": CopyKind.DEFAULT, "host": "from", "out": "to"}
"""Of copies that leave it to the driver to find out which side is on the host."""


def _copy(prototype: str, kind: CopyKind, *, variants: tuple[str, ...] = _BLOCKING, host: str | None = None) -> Hook:
    which = _TO_BE_FOUND_OUT if kind is CopyKind.DEFAULT else {"kind": kind, "host": host}
    return Hook(prototype, Family.COPY, "copy_linear", "copy_done", size="bytes", variants=variants, **which)


def _copy_async(
    prototype: str, kind: CopyKind, *, variants: tuple[str, ...] = _STREAM, host: str | None = None
) -> Hook:
    which = _TO_BE_FOUND_OUT if kind is CopyKind.DEFAULT else {"kind": kind, "host": host}
    return Hook(
        prototype,
        Family.COPY,
        "copy_linear_async",
        size="bytes",
        stream="stream",
        variants=variants,
        **which,
    )


def _copy_struct(prototype: str, shape: str, kind: int = 0, variants: tuple[str, ...] = _BLOCKING) -> Hook:
    if "stream" in prototype:
        return Hook(prototype, Family.COPY, f"copy_{shape}_async", kind=kind, stream="stream", variants=variants)
    return Hook(prototype, Family.COPY, f"copy_{shape}", "copy_done", kind=kind, variants=variants)


_GRID = "unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared"
_V2_STREAM = ("_v2", "_v2_ptsz")
_V2_BLOCKING = ("_v2", "_v2_ptds")
_PROPERTIES_LOCATION = 8
"""Where CUmemPoolProps has its CUmemLocation."""

DRIVER: tuple[Hook, ...] = (
    _launch(f"cuLaunchKernel(void *function, {_GRID}, void *stream, void **params, void **extra)", "launch_kernel"),
    _launch(f"cuLaunchCooperativeKernel(void *function, {_GRID}, void *stream, void **params)", "launch_kernel"),
    Hook(
        "cuLaunchKernelEx(const void *config, void *function, void **params, void **extra)",
        Family.LAUNCH,
        "launch_kernel_ex",
        variants=_STREAM,
    ),
    Hook(
        "cuLaunchCooperativeKernelMultiDevice(void *list, unsigned n, unsigned flags)",
        Family.LAUNCH,
        "launch_multi_device",
    ),
    Hook("cuLaunch(void *function)", Family.LAUNCH, "launch_grid"),
    Hook("cuLaunchGrid(void *function, int width, int height)", Family.LAUNCH, "launch_grid", size="width"),
    Hook(
        "cuLaunchGridAsync(void *function, int width, int height, void *stream)",
        Family.LAUNCH,
        "launch_grid",
        size="width",
        stream="stream",
    ),
    Hook("cuGraphLaunch(void *exec, void *stream)", Family.GRAPH_LAUNCH, "launch_graph", stream="stream", variants=_STREAM),
    # Copies: one function for each direction.
    _copy("cuMemcpyHtoD(u64 to, const void *from, size_t bytes)", CopyKind.HOST_TO_DEVICE, variants=_V2_BLOCKING, host="from"),
    _copy("cuMemcpyDtoH(void *to, u64 from, size_t bytes)", CopyKind.DEVICE_TO_HOST, variants=_V2_BLOCKING, host="to"),
    _copy("cuMemcpyDtoD(u64 to, u64 from, size_t bytes)", CopyKind.DEVICE_TO_DEVICE, variants=_V2_BLOCKING),
    _copy("cuMemcpyAtoH(void *to, void *array, size_t offset, size_t bytes)", CopyKind.DEVICE_TO_HOST, variants=_V2_BLOCKING, host="to"),
    _copy("cuMemcpyHtoA(void *array, size_t offset, const void *from, size_t bytes)", CopyKind.HOST_TO_DEVICE, variants=_V2_BLOCKING, host="from"),
    _copy("cuMemcpyAtoD(u64 to, void *array, size_t offset, size_t bytes)", CopyKind.DEVICE_TO_DEVICE, variants=_V2_BLOCKING),
    _copy("cuMemcpyDtoA(void *array, size_t offset, u64 from, size_t bytes)", CopyKind.DEVICE_TO_DEVICE, variants=_V2_BLOCKING),
    _copy("cuMemcpyAtoA(void *to, size_t to_offset, void *from, size_t from_offset, size_t bytes)", CopyKind.DEVICE_TO_DEVICE, variants=_V2_BLOCKING),
    _copy("cuMemcpy(u64 to, u64 from, size_t bytes)", CopyKind.DEFAULT),
    _copy("cuMemcpyPeer(u64 to, void *to_context, u64 from, void *from_context, size_t bytes)", CopyKind.PEER),
    _copy_async("cuMemcpyHtoDAsync(u64 to, const void *from, size_t bytes, void *stream)", CopyKind.HOST_TO_DEVICE, variants=_V2_STREAM, host="from"),
    _copy_async("cuMemcpyDtoHAsync(void *to, u64 from, size_t bytes, void *stream)", CopyKind.DEVICE_TO_HOST, variants=_V2_STREAM, host="to"),
    _copy_async("cuMemcpyDtoDAsync(u64 to, u64 from, size_t bytes, void *stream)", CopyKind.DEVICE_TO_DEVICE, variants=_V2_STREAM),
    _copy_async("cuMemcpyHtoAAsync(void *array, size_t offset, const void *from, size_t bytes, void *stream)", CopyKind.HOST_TO_DEVICE, variants=_V2_STREAM, host="from"),
    _copy_async("cuMemcpyAtoHAsync(void *to, void *array, size_t offset, size_t bytes, void *stream)", CopyKind.DEVICE_TO_HOST, variants=_V2_STREAM, host="to"),
    _copy_async("cuMemcpyAsync(u64 to, u64 from, size_t bytes, void *stream)", CopyKind.DEFAULT),
    _copy_async("cuMemcpyPeerAsync(u64 to, void *to_context, u64 from, void *from_context, size_t bytes, void *stream)", CopyKind.PEER),
    _copy_async("cuMemcpyWithAttributesAsync(u64 to, u64 from, size_t bytes, void *attributes, void *stream)", CopyKind.DEFAULT),
    _copy_struct("cuMemcpy2D(const void *copy)", "2d", variants=_V2_BLOCKING),
    _copy_struct("cuMemcpy2DUnaligned(const void *copy)", "2d", variants=_V2_BLOCKING),
    _copy_struct("cuMemcpy2DAsync(const void *copy, void *stream)", "2d", variants=_V2_STREAM),
    _copy_struct("cuMemcpy3D(const void *copy)", "3d", variants=_V2_BLOCKING),
    _copy_struct("cuMemcpy3DAsync(const void *copy, void *stream)", "3d", variants=_V2_STREAM),
    _copy_struct("cuMemcpy3DPeer(const void *copy)", "3d", CopyKind.PEER),
    _copy_struct("cuMemcpy3DPeerAsync(const void *copy, void *stream)", "3d", CopyKind.PEER, _STREAM),
    Hook(
        "cuMemcpyBatchAsync(u64 *tos, u64 *froms, size_t *sizes, size_t count, void *attributes, size_t *indexes, size_t n, size_t *failed, void *stream)",
        Family.COPY, "copy_batch", host="froms", out="tos", size="sizes", size2="count", stream="stream", variants=_STREAM,
    ),
    Hook(
        "cuMemcpyBatchAsync_v2(u64 *tos, u64 *froms, size_t *sizes, size_t count, void *attributes, size_t *indexes, size_t n, void *stream)",
        Family.COPY, "copy_batch", host="froms", out="tos", size="sizes", size2="count", stream="stream", variants=_STREAM,
    ),
    Hook(
        "cuMemcpy3DBatchAsync(size_t count, void *ops, size_t *failed, u64 flags, void *stream)",
        Family.COPY, "copy_3d_batch", size="ops", size2="count", stream="stream", variants=_STREAM,
    ),
    Hook(
        "cuMemcpy3DBatchAsync_v2(size_t count, void *ops, u64 flags, void *stream)",
        Family.COPY, "copy_3d_batch", size="ops", size2="count", stream="stream", variants=_STREAM,
    ),
    Hook(
        "cuMemcpy3DWithAttributesAsync(void *op, u64 flags, void *stream)",
        Family.COPY, "copy_3d_batch", size="op", stream="stream", variants=_STREAM,
    ),
    # Memsets: elements of 1, 2 and 4 bytes.
    *(
        hook
        for shift, bits, element in ((0, 8, "unsigned char value"), (1, 16, "unsigned short value"), (2, 32, "unsigned value"))
        for hook in (
            shapes.fill(f"cuMemsetD{bits}(u64 to, {element}, size_t n)", shift, _V2_BLOCKING),
            shapes.fill(f"cuMemsetD2D{bits}(u64 to, size_t pitch, {element}, size_t width, size_t height)", shift, _V2_BLOCKING),
            shapes.fill(f"cuMemsetD{bits}Async(u64 to, {element}, size_t n, void *stream)", shift, _STREAM),
            shapes.fill(f"cuMemsetD2D{bits}Async(u64 to, size_t pitch, {element}, size_t width, size_t height, void *stream)", shift, _STREAM),
        )
    ),
    # Memory.
    shapes.alloc("cuMemAlloc(u64 *out, size_t bytes)", MemoryType.DEVICE, variants=("_v2",)),
    shapes.alloc(
        "cuMemAllocPitch(u64 *out, size_t *pitch, size_t width, size_t height, unsigned element)",
        MemoryType.DEVICE, size="height", size2="pitch", flags=FLAG_PITCHED, variants=("_v2",),
    ),
    shapes.alloc("cuMemAllocManaged(u64 *out, size_t bytes, unsigned flags)", MemoryType.MANAGED),
    shapes.alloc("cuMemAllocHost(void **out, size_t bytes)", MemoryType.HOST, variants=("_v2",)),
    shapes.alloc("cuMemHostAlloc(void **out, size_t bytes, unsigned flags)", MemoryType.HOST),
    shapes.alloc("cuMemHostRegister(void *out, size_t bytes, unsigned flags)", MemoryType.REGISTERED, flags=FLAG_DIRECT, variants=("", "_v2")),
    shapes.alloc("cuMemAllocAsync(u64 *out, size_t bytes, void *stream)", MemoryType.ASYNC, stream="stream", variants=_STREAM),
    shapes.alloc("cuMemAllocFromPoolAsync(u64 *out, size_t bytes, void *pool, void *stream)", MemoryType.ASYNC, stream="stream", variants=_STREAM),
    shapes.alloc("cuMemCreate(u64 *out, size_t bytes, const void *properties, u64 flags)", MemoryType.VIRTUAL, size2="properties"),
    shapes.free("cuMemFree(u64 address)", variants=("_v2",)),
    shapes.free("cuMemFreeHost(void *address)"),
    shapes.free("cuMemHostUnregister(void *address)"),
    shapes.free("cuMemFreeAsync(u64 address, void *stream)", stream="stream", variants=_STREAM),
    shapes.handle("cuMemRelease(u64 handle)", "handle_released", out="handle"),
    shapes.handle("cuMemRetainAllocationHandle(u64 *out, void *address)", "handle_retained", out="out"),
    shapes.handle("cuMemImportFromShareableHandle(u64 *out, void *shareable, int type)", "handle_imported", out="out"),
    shapes.handle("cuMemMap(u64 address, size_t size, size_t offset, u64 handle, u64 flags)", "handle_mapped", out="address", size="handle", size2="size"),
    shapes.handle("cuMemUnmap(u64 address, size_t size)", "handle_unmapped", out="address", size="size"),
    # What copies must know to tell host and device apart.
    Hook("cuInit(unsigned flags)", None, "initialized"),
    *(
        Hook(prototype, None, "handle_call", "global_found", kind=kind, out="out", size="bytes", variants=variants)
        for prototype, kind, variants in (
            ("cuModuleGetGlobal(u64 *out, size_t *bytes, void *module, const char *name)", MemoryType.DEVICE, ("_v2",)),
            ("cuLibraryGetGlobal(u64 *out, size_t *bytes, void *library, const char *name)", MemoryType.DEVICE, ("",)),
            ("cuLibraryGetManaged(u64 *out, size_t *bytes, void *library, const char *name)", MemoryType.MANAGED, ("",)),
        )
    ),
    *(
        Hook(prototype, None, "memory_placed", size="location", shift=shift)
        for prototype, shift in (
            ("cuMemPoolCreate(void **out, const void *location)", _PROPERTIES_LOCATION),
            ("cuMemGetDefaultMemPool(void **out, const void *location, int type)", 0),
            ("cuMemGetMemPool(void **out, const void *location, int type)", 0),
        )
    ),
    *(
        Hook(prototype, None, "memory_hidden", variants=variants)
        for prototype, variants in (
            ("cuIpcOpenMemHandle(u64 *out, CUipcMemHandle handle, unsigned flags)", ("", "_v2")),
            ("cuMemPoolImportPointer(u64 *out, void *pool, void *data)", ("",)),
            ("cuExternalMemoryGetMappedBuffer(u64 *out, void *memory, const void *description)", ("",)),
            ("cuGraphicsResourceGetMappedPointer(u64 *out, size_t *size, void *resource)", ("", "_v2")),
            ("cuGraphAddMemAllocNode(void **out, void *graph, void *dependencies, size_t n, void *params)", ("",)),
        )
    ),
    # Waiting.
    shapes.wait("cuStreamSynchronize(void *stream)", WaitKind.STREAM, _STREAM),
    shapes.wait("cuEventSynchronize(void *event)", WaitKind.EVENT),
    shapes.wait("cuCtxSynchronize(void)", WaitKind.CONTEXT, ("", "_v2")),
    Hook("cuStreamQuery(void *stream)", None, "query", "query_done", kind=WaitKind.STREAM, stream="stream", variants=_STREAM),
    Hook("cuEventQuery(void *event)", None, "query", "query_done", kind=WaitKind.EVENT),
    Hook("cuEventElapsedTime(float *out, void *begin, void *end)", None, "query", "elapsed_done", out="out", variants=("", "_v2")),
    Hook("cuEventDestroy(void *event)", None, "event_destroyed", out="event", variants=("", "_v2")),
    Hook("cuGraphAddEventRecordNode(void **node, void *graph, void *dependencies, size_t n, void *event)", None, "event_lost", out="event"),
    # What a stream waits for besides the device.
    *(
        Hook(prototype, None, "held", stream="stream" if "stream" in prototype else None, variants=variants)
        for prototype, variants in (
            ("cuLaunchHostFunc(void *stream, void *f, void *data)", _STREAM),
            ("cuStreamAddCallback(void *stream, void *f, void *data, unsigned flags)", _STREAM),
            ("cuStreamWaitValue32(void *stream, u64 address, unsigned value, unsigned flags)", ("", "_ptsz", "_v2", "_v2_ptsz")),
            ("cuStreamWaitValue64(void *stream, u64 address, u64 value, unsigned flags)", ("", "_ptsz", "_v2", "_v2_ptsz")),
            ("cuStreamBatchMemOp(void *stream, unsigned n, void *operations, unsigned flags)", ("", "_ptsz", "_v2", "_v2_ptsz")),
            ("cuWaitExternalSemaphoresAsync(void *semaphores, void *params, unsigned n, void *stream)", _STREAM),
            ("cuCtxWaitEvent(void *context, void *event)", ("",)),
            ("cuGreenCtxWaitEvent(void *context, void *event)", ("",)),
            ("cuGraphAddHostNode(void **out, void *graph, void *dependencies, size_t n, const void *params)", ("",)),
            ("cuGraphAddEventWaitNode(void **out, void *graph, void *dependencies, size_t n, void *event)", ("",)),
            ("cuGraphAddExternalSemaphoresWaitNode(void **out, void *graph, void *dependencies, size_t n, const void *params)", ("",)),
            ("cuGraphAddBatchMemOpNode(void **out, void *graph, void *dependencies, size_t n, const void *params)", ("",)),
        )
    ),
    # Stream capture: what is recorded does not run.
    *(
        Hook(prototype, None, "capture_begin", "capture_begun", stream="stream", variants=variants)
        for prototype, variants in (
            ("cuStreamBeginCapture(void *stream, int mode)", ("", "_ptsz", "_v2", "_v2_ptsz")),
            ("cuStreamBeginCaptureToGraph(void *stream, void *graph, void *nodes, void *edges, size_t n, int mode)", _STREAM),
            ("cuStreamBeginRecaptureToGraph(void *stream, int mode, void *graph, void *f, void *data)", _STREAM),
        )
    ),
    Hook(
        "cuStreamEndCapture(void *stream, void **out)",
        None, "call", "call_done", kind=CALL_ENDS_CAPTURE, stream="stream", out="out", variants=_STREAM,
    ),
    Hook("cuEventRecord(void *event, void *stream)", None, "event_record", stream="stream", variants=_STREAM),
    Hook("cuEventRecordWithFlags(void *event, void *stream, unsigned flags)", None, "event_record", stream="stream", variants=_STREAM),
    Hook("cuStreamWaitEvent(void *stream, void *event, unsigned flags)", None, "stream_wait_event", stream="stream", variants=_STREAM),
    # Names.
    *(
        Hook(prototype, None, "name", "named", out="out")
        for prototype in (
            "cuModuleGetFunction(void **out, void *module, const char *name)",
            "cuLibraryGetKernel(void **out, void *library, const char *name)",
        )
    ),
    Hook("cuFuncGetName(const char **out, void *function)", None, "name", "name_told", out="out"),
    Hook("cuKernelGetName(const char **out, void *kernel)", None, "name", "name_told", out="out"),
    shapes.call("cuKernelGetFunction(void **out, void *kernel)", kind=CALL_ALIASES),
    shapes.call("cuModuleUnload(void *module)", kind=CALL_UNLOADS),
    shapes.call("cuLibraryUnload(void *library)", kind=CALL_UNLOADS),
    # Graphs: what is in them.
    shapes.call("cuGraphAddKernelNode(void **out, void *graph, void *dependencies, size_t n, const void *params)", variants=("", "_v2"), data="params"),
    shapes.call("cuGraphAddMemcpyNode(void **out, void *graph, void *dependencies, size_t n, const void *params, void *context)", data="params"),
    shapes.call("cuGraphAddMemsetNode(void **out, void *graph, void *dependencies, size_t n, const void *params, void *context)", data="params"),
    shapes.call("cuGraphAddChildGraphNode(void **out, void *graph, void *dependencies, size_t n, void *child)"),
    shapes.call("cuGraphAddNode(void **out, void *graph, void *dependencies, size_t n, const void *params)", data="params", kind=CALL_ADDS_NODE),
    shapes.call("cuGraphAddNode_v2(void **out, void *graph, void *dependencies, void *edges, size_t n, const void *params)", data="params", kind=CALL_ADDS_NODE, variants=("",)),
    shapes.call("cuGraphAddNode_v3(void **out, void *graph, void *dependencies, void *edges, size_t n, const void *params)", data="params", kind=CALL_ADDS_NODE, variants=("",)),
    shapes.call("cuGraphClone(void **out, void *graph)"),
    shapes.call("cuGraphNodeFindInClone(void **out, void *node, void *clone)"),
    shapes.call("cuGraphDestroyNode(void *node)"),
    shapes.call("cuGraphDestroy(void *graph)"),
    shapes.call("cuGraphKernelNodeSetParams(void *node, const void *params)", variants=("", "_v2"), data="params"),
    shapes.call("cuGraphMemcpyNodeSetParams(void *node, const void *params)", data="params"),
    shapes.call("cuGraphMemsetNodeSetParams(void *node, const void *params)", data="params"),
    shapes.call("cuGraphNodeSetParams(void *node, const void *params)", variants=("", "_v2"), data="params"),
    shapes.call("cuGraphInstantiate(void **out, void *graph, void *failed, void *log, size_t size)", variants=("", "_v2"), flags=FLAG_EXEC),
    shapes.call("cuGraphInstantiateWithFlags(void **out, void *graph, u64 flags)", flags=FLAG_EXEC),
    shapes.call("cuGraphInstantiateWithParams(void **out, void *graph, void *params)", data="params", variants=_STREAM, flags=FLAG_EXEC),
    shapes.call("cuGraphExecUpdate(void *exec, void *graph, void *failed, void *result)", flags=FLAG_EXEC),
    shapes.call("cuGraphExecUpdate_v2(void *exec, void *graph, void *result)", flags=FLAG_EXEC),
    shapes.call("cuGraphExecKernelNodeSetParams(void *exec, void *node, const void *params)", variants=("", "_v2"), data="params", flags=FLAG_EXEC),
    shapes.call("cuGraphExecMemcpyNodeSetParams(void *exec, void *node, const void *params, void *context)", data="params", flags=FLAG_EXEC),
    shapes.call("cuGraphExecMemsetNodeSetParams(void *exec, void *node, const void *params, void *context)", data="params", flags=FLAG_EXEC),
    shapes.call("cuGraphExecChildGraphNodeSetParams(void *exec, void *node, void *child)", flags=FLAG_EXEC),
    shapes.call("cuGraphExecNodeSetParams(void *exec, void *node, const void *params)", variants=("",), data="params", flags=FLAG_EXEC),
    shapes.call("cuGraphNodeSetEnabled(void *exec, void *node, unsigned enabled)", flags=FLAG_EXEC),
    shapes.call("cuGraphExecDestroy(void *exec)", kind=CALL_DESTROYS_EXEC),
    # Contexts and devices.
    *(
        Hook(prototype, None, "context", "context_made", out="out", size="device", flags=flags, variants=variants)
        for prototype, variants, flags in (
            ("cuCtxCreate(void **out, unsigned flags, int device)", ("_v2",), FLAG_PUSH),
            ("cuCtxCreate_v3(void **out, void *params, int n, unsigned flags, int device)", ("",), FLAG_PUSH),
            ("cuCtxCreate_v4(void **out, void *params, unsigned flags, int device)", ("",), FLAG_PUSH),
            ("cuDevicePrimaryCtxRetain(void **out, int device)", ("",), 0),
        )
    ),
    Hook(
        "cuGreenCtxCreate(void **out, void *resources, int device, unsigned flags)",
        None, "context", "context_made", kind=CONTEXT_GREEN, out="out", size="device",
    ),
    Hook("cuCtxFromGreenCtx(void **out, void *green)", None, "green_context", "green_context_made", out="out", size="green"),
    shapes.call("cuGreenCtxDestroy(void *green)", kind=CALL_DESTROYS_GREEN),
    Hook("cuCtxSetCurrent(void *context)", None, "context_set"),
    Hook("cuCtxPushCurrent(void *context)", None, "context_set", flags=FLAG_PUSH, variants=("_v2",)),
    Hook("cuCtxPopCurrent(void **context)", None, "context_pop", variants=("_v2",)),
    shapes.call("cuCtxDestroy(void *context)", kind=CALL_UNLOADS, variants=("_v2",)),
    shapes.call("cuDevicePrimaryCtxRelease(int device)", kind=CALL_RELEASES_PRIMARY, variants=("", "_v2")),
    shapes.call("cuDevicePrimaryCtxReset(int device)", kind=CALL_RESETS_PRIMARY, variants=("", "_v2")),
    shapes.call("cuDeviceGetUuid(void *out, int device)", variants=("", "_v2"), flags=FLAG_RESULT),
)  # fmt: skip


TABLES: dict[LibraryKind, tuple[Hook, ...]] = {LibraryKind.DRIVER: DRIVER, LibraryKind.HIP: HIP}
"""What is probed in which libraries."""


def _counted_name(hook: Hook) -> str:
    return re.sub(r"_v\d$", "", hook.counts_as or hook.name)


_TIME = frozenset({"query", "held", "event_lost"})
"""Programs on functions that tell of nothing but the time for which a device works."""


def counted_hooks(kind: LibraryKind, counted: Counted) -> list[Hook]:
    """Return the functions of a library that are probed to count so much."""
    families = {Family.LAUNCH, Family.GRAPH_LAUNCH, None} if counted is Counted.LAUNCHES else {*Family, None}
    left_out = frozenset() if counted is Counted.ALL else _TIME
    return [hook for hook in TABLES.get(kind, ()) if hook.family in families and hook.program not in left_out]


def counting_programs(counted: Counted) -> set[str]:
    """Return the programs that those functions have."""
    return programs_of(hook for kind in TABLES for hook in counted_hooks(kind, counted))


FUNCTIONS: tuple[str, ...] = tuple(dict.fromkeys(map(_counted_name, (*DRIVER, *HIP))))
"""Function names without their version, by the number that cookies and rows carry."""


def function_number(hook: Hook) -> int:
    """Return the number under which rows and events report a hook's function."""
    return FUNCTIONS.index(_counted_name(hook))
