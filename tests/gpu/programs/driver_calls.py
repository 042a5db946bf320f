"""What does the driver's API alone do? Copies, fills and launches whose numbers are known, then work that events time."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from ctypes import byref, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p

from protocol import Phase, serve

PTX = b"""
.version 6.3
.target sm_75
.address_size 64

.visible .entry gpu_check_empty(.param .u64 cycles)
{
    ret;
}

.visible .entry gpu_check_spin(.param .u64 cycles)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [cycles];
    mov.u64 %rd2, %clock64;
again:
    mov.u64 %rd3, %clock64;
    sub.u64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p1, %rd4, %rd1;
    @%p1 bra again;
    ret;
}
"""
LAUNCHES = {"gpu_check_empty": 1000, "gpu_check_spin": 10}
SIZES = (1, 4096, 1 << 20, 5_000_001)
HELD, FILLED = 64 << 20, 12_345_678
BATCHES, BATCH, SPIN_CYCLES = 20, 10, 2_000_000


class Driver:
    """The driver, every call checked, with one module and context."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", c_uint(0))
        device, context, module = c_int(), c_void_p(), c_void_p()
        self.call("cuDeviceGet", byref(device), c_int(0))
        uuid = (c_ubyte * 16)()
        self.call("cuDeviceGetUuid", uuid, device)
        self.uuid = bytes(uuid).hex()
        self.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", byref(module), PTX)
        self._kernels = {name: c_void_p() for name in LAUNCHES}
        for name, kernel in self._kernels.items():
            self.call("cuModuleGetFunction", byref(kernel), module, name.encode())

    def call(self, name: str, *arguments: object) -> None:
        result = getattr(self._cuda, name)(*arguments)
        if result != 0:
            raise SystemExit(f"{name} returned {result}")

    def allocate(self, size: int) -> c_uint64:
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), c_size_t(size))
        return address

    def launch(self, kernel: str, cycles: int = 0) -> None:
        argument = c_uint64(cycles)
        arguments = (c_void_p * 1)(ctypes.addressof(argument))
        one, nothing = c_uint(1), c_void_p()
        grid = (one,) * 6
        self.call("cuLaunchKernel", self._kernels[kernel], *grid, c_uint(0), nothing, arguments, nothing)

    def event(self) -> c_void_p:
        event = c_void_p()
        self.call("cuEventCreate", byref(event), c_uint(0))
        return event


def calls(driver: Driver) -> Mapping[str, object]:
    """Make known calls and keep the memory."""
    here, there = driver.allocate(HELD), driver.allocate(HELD)
    host = ctypes.create_string_buffer(max(SIZES))
    for size in SIZES:
        driver.call("cuMemcpyHtoD_v2", here, host, c_size_t(size))
        driver.call("cuMemcpyDtoD_v2", there, here, c_size_t(size))
        driver.call("cuMemcpyDtoH_v2", host, there, c_size_t(size))
    driver.call("cuMemsetD8_v2", here, c_ubyte(7), c_size_t(FILLED))
    temporary = driver.allocate(1 << 20)
    driver.call("cuMemFree_v2", temporary)
    for kernel, times in LAUNCHES.items():
        for _ in range(times):
            driver.launch(kernel, 1000)
    driver.call("cuCtxSynchronize")
    return {
        "launches": LAUNCHES,
        "copies": {
            f"Memcpy{way}": [len(SIZES), sum(SIZES)] for way in ("HostToDevice", "DeviceToDevice", "DeviceToHost")
        },
        "filled": FILLED,
        "allocated": 2 * HELD + (1 << 20),
        "held": 2 * HELD,
        "uuid": driver.uuid,
    }


def work(driver: Driver) -> Mapping[str, object]:
    """Let the device work in batches that events time, with pauses between them."""
    begin, end = driver.event(), driver.event()
    nothing, total_ms = c_void_p(), 0.0
    for _ in range(BATCHES):
        driver.call("cuEventRecord", begin, nothing)
        for _ in range(BATCH):
            driver.launch("gpu_check_spin", SPIN_CYCLES)
        driver.call("cuEventRecord", end, nothing)
        driver.call("cuEventSynchronize", end)
        elapsed = c_float()
        driver.call("cuEventElapsedTime", byref(elapsed), begin, end)
        total_ms += elapsed.value
        time.sleep(0.02)
    return {"device_s": total_ms / 1e3, "batches": BATCHES}


def _prepare() -> list[Phase]:
    driver = Driver()
    return [lambda: calls(driver), lambda: work(driver)]


serve(_prepare)
