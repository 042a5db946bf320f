"""What does a batched engine do? Requests come over ZeroMQ, steps launch for many of them at once, outputs go back.

usage: batched_engine.py INPUT OUTPUT TRUTH [--batch N] [--step-ms N] [--warm-up LAUNCHES]
                         [--idle-ms N] [--graphs] [--more-input ADDRESS]

Shaped like vLLM's engine process: one thread takes messages in, the main thread makes all calls of the driver, in steps,
and another thread sends what each step gave. TRUTH gets one line a step: which requests it served, what it launched and
copied, and when by the wall clock. It ends with a message that is empty. Whoever connects to ADDRESS may ask as well.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import queue
import signal
import sys
import threading
import time
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

import zmq

IMAGE = b""".version 8.0
.target sm_90
.address_size 64
.visible .entry attend()
{ ret; }
"""
STAGING = 1 << 16
TOKEN_BYTES = 4
LAUNCHES_OF_STEP, LAUNCHES_OF_REQUEST = 5, 2
END_WITH_PARENT = 1
"""PR_SET_PDEATHSIG"""
INPUTS = 2
"""Copies to the device before each step, as positions and tokens are."""


class Driver:
    """libcuda.so.1, every call checked."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name: str):
        function = getattr(self._library, name)

        def call(*arguments: object) -> None:
            if code := function(*arguments):
                sys.exit(f"{name} failed: {code}")

        return call


class Device:
    """What a step asks of the GPU."""

    def __init__(self) -> None:
        self.driver = driver = Driver()
        context, module, self._function, self._memory = c_void_p(), c_void_p(), c_void_p(), c_uint64()
        driver.cuInit(0)
        device = ctypes.c_int()
        driver.cuDeviceGet(byref(device), 0)
        driver.cuDevicePrimaryCtxRetain(byref(context), device)
        driver.cuCtxSetCurrent(context)
        driver.cuModuleLoadData(byref(module), IMAGE)
        driver.cuModuleGetFunction(byref(self._function), module, b"attend")
        driver.cuMemAlloc_v2(byref(self._memory), c_size_t(STAGING))
        self._host = ctypes.create_string_buffer(STAGING)
        self._graph = c_void_p()

    def launch(self, times: int, width: int) -> None:
        one = c_uint(1)
        for _ in range(times):
            grid = c_uint(width), one, one
            self.driver.cuLaunchKernel(self._function, *grid, c_uint(128), one, one, c_uint(0), None, None, None)

    def launch_graph(self) -> None:
        """Launch an empty graph, and copy within the device."""
        if not self._graph:
            graph = c_void_p()
            self.driver.cuGraphCreate(byref(graph), c_uint(0))
            self.driver.cuGraphInstantiateWithFlags(byref(self._graph), graph, c_uint64(0))
        self.driver.cuGraphLaunch(self._graph, None)
        half = c_size_t(STAGING // 2)
        self.driver.cuMemcpyDtoDAsync_v2(c_uint64(self._memory.value + half.value), self._memory, half, None)

    def step(self, requests: int, pause_s: float) -> dict[str, int]:
        """Run one step and return what it took."""
        size = max(requests, 1) * TOKEN_BYTES
        for _ in range(INPUTS):
            self.driver.cuMemcpyHtoDAsync_v2(self._memory, self._host, c_size_t(size), None)
        launches = LAUNCHES_OF_STEP + LAUNCHES_OF_REQUEST * requests
        self.launch(launches, max(requests, 1))
        time.sleep(pause_s)
        self.driver.cuMemcpyDtoHAsync_v2(self._host, self._memory, c_size_t(size), None)
        self.driver.cuStreamSynchronize(None)
        return {"launches": launches, "h2d": INPUTS, "h2d_bytes": INPUTS * size, "d2h": 1, "d2h_bytes": size}


def take_in(context: zmq.Context, address: str, arrived: queue.Queue[dict[str, object] | None]) -> None:
    with context.socket(zmq.DEALER) as messages:
        messages.setsockopt(zmq.IDENTITY, b"\0\0")
        messages.connect(address)
        messages.send(b"READY")
        while True:
            _kind, body = messages.recv_multipart()
            arrived.put(json.loads(body) if body else None)
            if not body:
                return


def take_in_more(context: zmq.Context, address: str, arrived: queue.Queue[dict[str, object] | None]) -> None:
    with context.socket(zmq.PULL) as messages:
        messages.bind(address)
        while body := messages.recv():
            arrived.put(json.loads(body))


def send_out(context: zmq.Context, address: str, outputs: queue.Queue[list[object] | None]) -> None:
    with context.socket(zmq.PUSH) as messages:
        messages.connect(address)
        while (output := outputs.get()) is not None:
            messages.send(json.dumps(output).encode())


def run(device: Device, arguments: argparse.Namespace, arrived: queue.Queue, outputs: queue.Queue) -> None:
    """Serve until told to end: what has arrived joins the batch before each step, what is done leaves it after."""
    running: dict[str, dict[str, object]] = {}
    waiting: list[dict[str, object]] = []
    idle_s, has_served = arguments.idle_ms / 1e3 or None, False
    with arguments.truth.open("w", buffering=1) as truth:
        while True:
            try:
                while not arrived.empty() or not (running or waiting):
                    if (request := arrived.get(timeout=idle_s if has_served else None)) is None:
                        return
                    waiting.append(request)
            except queue.Empty:
                pass  # a step for nobody, to keep the device warm
            while waiting and len(running) < arguments.batch:
                has_served, request = True, waiting.pop(0)
                running[str(request["id"])] = {"left": request["tokens"]}
            began = time.time_ns()
            if arguments.graphs:
                device.launch_graph()
            did = device.step(len(running), arguments.step_ms / 1e3)
            truth.write(json.dumps({"ids": list(running), "began": began, "ended": time.time_ns(), **did}) + "\n")
            output = []
            for name, state in list(running.items()):
                state["left"] -= 1
                output.append([name, state["left"] == 0])
                if not state["left"]:
                    del running[name]
            outputs.put(output)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("truth", type=Path)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--step-ms", type=float, default=2)
    parser.add_argument("--warm-up", type=int, default=100)
    parser.add_argument("--idle-ms", type=float, default=0)
    parser.add_argument("--more-input")
    parser.add_argument("--graphs", action="store_true", help="each step launches a graph and copies within the device")
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)
    device = Device()
    device.launch(arguments.warm_up, 1)
    device.driver.cuCtxSynchronize()
    context = zmq.Context()
    arrived: queue.Queue = queue.Queue()
    outputs: queue.Queue = queue.Queue()
    threads = [
        threading.Thread(target=take_in, args=(context, arguments.input, arrived)),
        threading.Thread(target=send_out, args=(context, arguments.output, outputs)),
    ]
    for thread in threads:
        thread.start()
    if arguments.more_input:
        threading.Thread(target=take_in_more, args=(context, arguments.more_input, arrived), daemon=True).start()
    run(device, arguments, arrived, outputs)
    outputs.put(None)
    for thread in threads:
        thread.join()
    if not arguments.more_input:
        context.term()


if __name__ == "__main__":
    main()
