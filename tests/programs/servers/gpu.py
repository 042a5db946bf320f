"""The driver as servers of the tests use it: so many launches for whoever asks, and a count of all of them."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p

IMAGE = b""".version 8.0
.target sm_90
.address_size 64
.visible .entry serve()
{ ret; }
.visible .entry background()
{ ret; }
"""
_driver = ctypes.CDLL("libcuda.so.1")
_state: dict[str, c_void_p] = {}
_device = c_uint64()
_host = ctypes.create_string_buffer(4096)
_ONE = c_uint(1)
_launched = itertools.count()


def _call(name: str, *arguments: object) -> None:
    if code := getattr(_driver, name)(*arguments):
        raise OSError(f"{name} failed: {code}")


def start() -> None:
    """Load the kernels; once for each process, and in every thread `attach` before it launches."""
    context, module = c_void_p(), c_void_p()
    _call("cuInit", 0)
    _call("cuDevicePrimaryCtxRetain", byref(context), 0)
    _state["context"] = context
    attach()
    _call("cuModuleLoadData", byref(module), IMAGE)
    for name in ("serve", "background"):
        function = c_void_p()
        _call("cuModuleGetFunction", byref(function), module, name.encode())
        _state[name] = function
    _call("cuMemAlloc_v2", byref(_device), c_size_t(4096))


def attach() -> None:
    """Make the context current in this thread."""
    _call("cuCtxSetCurrent", _state["context"])


def launch(request: int, kernel: str = "serve", times: int = 1) -> None:
    """Launch with a grid that says for which request it is."""
    attach()
    for _ in range(times):
        next(_launched)
        _call(
            "cuLaunchKernel",
            _state[kernel],
            c_uint(request),
            _ONE,
            _ONE,
            c_uint(32),
            _ONE,
            _ONE,
            c_uint(0),
            None,
            None,
            None,
        )


def copy(size: int) -> None:
    """Copy to the device and back, blocking."""
    copy_to_device(size)
    copy_to_host(size)


def copy_to_device(size: int) -> None:
    """Copy to the device, blocking."""
    attach()
    _call("cuMemcpyHtoD_v2", _device, _host, c_size_t(size))


def copy_to_host(size: int) -> None:
    """Copy to the host, blocking."""
    attach()
    _call("cuMemcpyDtoH_v2", _host, _device, c_size_t(size))


def copy_on_device(size: int) -> None:
    """Copy within the device."""
    attach()
    _call("cuMemcpyDtoD_v2", c_uint64(_device.value + size), _device, c_size_t(size))


def launch_graph() -> None:
    """Launch a graph, an empty one."""
    attach()
    if "graph" not in _state:
        graph, made = c_void_p(), c_void_p()
        _call("cuGraphCreate", byref(graph), c_uint(0))
        _call("cuGraphInstantiateWithFlags", byref(made), graph, c_uint64(0))
        _state["graph"] = made
    _call("cuGraphLaunch", _state["graph"], None)


def wait() -> None:
    """Wait for the device."""
    attach()
    _call("cuCtxSynchronize")


def launched() -> int:
    """Return how many launches there were."""
    count = next(_launched)
    globals()["_launched"] = itertools.count(count)
    return count


def say(**what: object) -> None:
    """Tell the test something."""
    # In one piece: workers share the pipe.
    os.write(1, json.dumps({"pid": os.getpid(), **what}).encode() + b"\n")


def say_launches_at_end() -> None:
    """Tell the test how many launches there were, when it is told to end."""

    def end(*_: object) -> None:
        say(event="end", launches=launched())
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
