"""How does a program without any framework use a GPU? The driver's API by ctypes; what it does is counted here too."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Sequence
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p

# Every kernel spins: what it computes is of no interest, that it takes time is. PTX for Turing runs on all later GPUs.
_PTX_HEAD = ".version 6.3\n.target sm_75\n.address_size 64\n"
_PTX_KERNEL = """
.visible .entry {name}(.param .u64 data, .param .u32 rounds)
{{
    .reg .pred %more;
    .reg .f32 %value;
    .reg .u32 %left, %thread;
    .reg .u64 %base, %place;
    ld.param.u64 %base, [data];
    ld.param.u32 %left, [rounds];
    cvta.to.global.u64 %base, %base;
    mov.u32 %thread, %tid.x;
    mad.wide.u32 %place, %thread, 4, %base;
    ld.global.f32 %value, [%place];
again:
    fma.rn.f32 %value, %value, 0f3F000000, 0f3F800000;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra again;
    st.global.f32 [%place], %value;
    ret;
}}
"""
_ROUNDS = 2000
_NON_BLOCKING = 1
_OUT_OF_MEMORY = 2
_SCRATCH_BYTES = 1 << 20


class GpuError(Exception):
    """A call of the driver failed."""


class OutOfMemoryError(GpuError):
    """The driver has no such piece of memory."""


class Graph:
    """Kernels that are launched together."""

    def __init__(self, executable: c_void_p, kernels: int) -> None:
        self.executable = executable
        self.kernels = kernels


class Gpu:
    """The first GPU and one stream. `tally` is what this program knows to have done."""

    def __init__(self, kernels: Sequence[str]) -> None:
        self.tally: Counter[str] = Counter()
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._captured: int | None = None
        module, self._stream = c_void_p(), c_void_p()
        self._context = c_void_p()
        self._call("cuInit", c_uint32(0))
        self._call("cuDevicePrimaryCtxRetain", byref(self._context), c_int(0))
        self.use_here()
        self._call("cuStreamCreate", byref(self._stream), c_uint32(_NON_BLOCKING))
        image = _PTX_HEAD + "".join(_PTX_KERNEL.format(name=name) for name in kernels)
        self._call("cuModuleLoadData", byref(module), image.encode())
        self._functions = {name: c_void_p() for name in kernels}
        for name, function in self._functions.items():
            self._call("cuModuleGetFunction", byref(function), module, name.encode())
        self._data, self._rounds = c_uint64(self.allocate(_SCRATCH_BYTES)), c_uint32(_ROUNDS)
        pointers = ctypes.cast(byref(self._data), c_void_p), ctypes.cast(byref(self._rounds), c_void_p)
        self._parameters = (c_void_p * 2)(*(p.value for p in pointers))

    def use_here(self) -> None:
        """Let the calling thread use it: a context is current in each thread by itself."""
        self._call("cuCtxSetCurrent", self._context)

    def launch(self, kernel: str, blocks: int, threads: int) -> None:
        """Start a kernel; it runs behind what was started before."""
        grid = c_uint32(blocks), c_uint32(1), c_uint32(1)
        block = c_uint32(threads), c_uint32(1), c_uint32(1)
        function = self._functions[kernel]
        self._call("cuLaunchKernel", function, *grid, *block, c_uint32(0), self._stream, self._parameters, None)
        if self._captured is None:
            self.tally["launches"] += 1
        else:
            self._captured += 1

    def capture(self, work: Callable[[], None]) -> Graph:
        """Make a graph of the kernels that `work` launches."""
        graph, executable, self._captured = c_void_p(), c_void_p(), 0
        self._call("cuStreamBeginCapture_v2", self._stream, c_int(0))
        work()
        self._call("cuStreamEndCapture", self._stream, byref(graph))
        self._call("cuGraphInstantiateWithFlags", byref(executable), graph, c_uint64(0))
        kernels, self._captured = self._captured, None
        return Graph(executable, kernels)

    def replay(self, graph: Graph) -> None:
        """Launch every kernel of a graph by one call."""
        self._call("cuGraphLaunch", graph.executable, self._stream)
        self.tally["graph launches"] += 1
        self.tally["kernels in graphs"] += graph.kernels

    def allocate(self, size: int) -> int:
        """Return the address of device memory."""
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), c_size_t(size))
        self.tally["bytes allocated"] += size
        return address.value

    def borrow(self, size: int) -> int:
        """Return the address of memory from the stream's pool, to be given back."""
        address = c_uint64()
        self._call("cuMemAllocAsync", byref(address), c_size_t(size), self._stream)
        self.tally["bytes allocated"] += size
        return address.value

    def give_back(self, address: int) -> None:
        """Return memory to the pool."""
        self._call("cuMemFreeAsync", c_uint64(address), self._stream)

    def pinned(self, size: int) -> int:
        """Return the address of page-locked host memory, which the GPU copies from and to by itself."""
        address = c_void_p()
        self._call("cuMemHostAlloc", byref(address), c_size_t(size), c_uint32(0))
        self.tally["bytes allocated"] += size
        return address.value or 0

    def upload(self, device: int, host: int, size: int) -> None:
        """Copy to the GPU, without waiting when the host memory is page-locked."""
        self._call("cuMemcpyHtoDAsync_v2", c_uint64(device), c_void_p(host), c_size_t(size), self._stream)
        self.tally["bytes to the GPU"] += size

    def download(self, host: int, device: int, size: int) -> None:
        """Copy from the GPU, without waiting when the host memory is page-locked."""
        self._call("cuMemcpyDtoHAsync_v2", c_void_p(host), c_uint64(device), c_size_t(size), self._stream)
        self.tally["bytes from the GPU"] += size

    def wait(self) -> None:
        """Wait until everything that was started has ended."""
        self._call("cuStreamSynchronize", self._stream)

    def _call(self, name: str, *arguments: object) -> None:
        code = self._cuda[name](*arguments)
        if code:
            self.tally["errors"] += 1
            raise (OutOfMemoryError if code == _OUT_OF_MEMORY else GpuError)(f"{name} returned {code}")
