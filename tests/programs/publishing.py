"""Publishes its context, and compares what observers would read of a thread with the span that is current there.

Says how often the two agreed and how often not, in which ways. With the argument `wait` it goes on until its input ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import json
import os
import struct
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

import otel_gpu
from otel_gpu.context.library import PATH

LIBRARY = ctypes.PyDLL(str(PATH))
TRACER = trace.get_tracer("test")
SAID: Counter[str] = Counter()


def published() -> tuple[bytes, bytes, int] | None:
    """Return the ids that this thread's variable leads to."""
    record = ctypes.c_void_p.in_dll(LIBRARY, "otel_thread_ctx_v1").value
    if record is None:
        return None
    trace_id, span_id, valid, flags, size = struct.unpack("16s8sBBH", ctypes.string_at(record, 28))
    assert (valid, size) == (1, 0)
    return trace_id, span_id, flags


def look(way: str) -> None:
    """Compare."""
    ids = trace.get_current_span().get_span_context()
    truth = (
        (ids.trace_id.to_bytes(16, "big"), ids.span_id.to_bytes(8, "big"), ids.trace_flags) if ids.is_valid else None
    )
    seen = published()
    SAID[f"{way}/{'in' if truth else 'out'}/{'right' if seen == truth else 'wrong' if seen else 'none'}"] += 1


def nested(way: str, times: int = 3) -> None:
    """Look within and between spans."""
    look(way)
    for _ in range(times):
        with TRACER.start_as_current_span("outer"):
            look(way)
            with TRACER.start_as_current_span("inner"):
                look(way)
            look(way)
        look(way)


def in_threads() -> None:
    """Have threads of their own, with and without their creator's context."""
    with TRACER.start_as_current_span("creator"):
        threads = [threading.Thread(target=nested, args=("thread",)) for _ in range(4)]
        threads += [threading.Thread(target=contextvars.copy_context().run, args=(nested, "copied")) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        look("thread")


async def task(number: int) -> None:
    """Take turns with other tasks, within a span."""
    look("task")
    with TRACER.start_as_current_span(f"task {number}"):
        for turn in range(5):
            await asyncio.sleep(0.0001 * (number % 3) if turn % 2 else 0)
            look("task")
        with TRACER.start_as_current_span("below"):
            await asyncio.gather(*(child() for _ in range(2)))
            look("task")
            await asyncio.to_thread(nested, "to_thread")
        asyncio.get_running_loop().call_soon(look, "call_soon")
        look("task")
    await asyncio.sleep(0)
    look("task")


async def child() -> None:
    """Be a task that has its parent's span."""
    look("child")
    await asyncio.sleep(0)
    look("child")


async def in_tasks() -> None:
    await asyncio.gather(*(task(n) for n in range(40)))
    with ThreadPoolExecutor(2) as pool:
        await asyncio.gather(*(asyncio.get_running_loop().run_in_executor(pool, nested, "executor") for _ in range(6)))
    cancelled = asyncio.ensure_future(task(1))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    look("loop")


def main() -> None:
    attributes = {"service.name": "publisher", "service.instance.id": "number-7", "deployment.environment.name": "test"}
    trace.set_tracer_provider(
        TracerProvider(resource=Resource.create({**attributes, "a.list": ["x", "y"], "a.number": 7}))
    )
    said = otel_gpu.context.publish()
    if "wait" not in sys.argv:
        nested("main")
        in_threads()
        asyncio.run(in_tasks())
        nested("main")
    ready, is_ready = os.pipe()
    child = os.fork()
    if not child:
        os.write(is_ready, b".")
        time.sleep(0 if "wait" not in sys.argv else 60)
        os._exit(0)
    os.read(ready, 1)
    print(json.dumps({"threads": said.threads, "reason": said.reason, "said": SAID, "child": child}), flush=True)
    if "wait" in sys.argv:
        sys.stdin.readline()
        os.kill(child, 9)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
