"""Servers of the standard library whose requests the program traces itself, with opentelemetry-python's SDK.

Arguments: the server (threads, asyncio), `inside` to serve within a span that the program has for all of its life, and
`publishes` to have the program tell observers who it is.
Requests are `/work/ID/TIMES/HOW`; the answer says in which spans their launches were, as `trace/span`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import gpu
import pausing
from opentelemetry import context, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

trace.set_tracer_provider(TracerProvider(resource=Resource.create({"service.instance.id": "number 7"})))
TRACER = trace.get_tracer("test")
CALLER = TraceContextTextMapPropagator()
POOL = ThreadPoolExecutor(4)
MANY = [contextvars.ContextVar(f"variable {n}") for n in range(40)]


def name(span) -> str:
    """Return a span's ids as they stand in spans that are sent."""
    ids = span.get_span_context()
    return f"{ids.trace_id:032x}/{ids.span_id:016x}"


def launch(request: int, times: int) -> str:
    """Launch in the span that is current, and say in which."""
    gpu.launch(request, times=times)
    gpu.wait()
    return name(trace.get_current_span())


def in_thread(request: int, times: int) -> str:
    """Launch in a thread that has the same context."""
    said: list[str] = []
    here = contextvars.copy_context()
    thread = threading.Thread(target=lambda: said.append(here.run(launch, request, times)))
    thread.start()
    thread.join()
    return said[0]


def work(request: int, times: int, how: str) -> list[str]:
    """Do a request's work without an event loop."""
    if how == "inner":
        with TRACER.start_as_current_span("inner"):
            return [launch(request, times)]
    if how == "two":
        first = launch(request, times)
        with TRACER.start_as_current_span("second"):
            return [first, launch(request, times)]
    if how == "thread":
        return [in_thread(request, times)]
    return [launch(request, times)]


def span_for(headers, how: str):
    """Return the span of a request, or what stands in for one."""
    if how == "untraced":
        return contextlib.nullcontext()
    if how == "caller":
        return current(CALLER.extract(headers))
    kind = SpanKind.INTERNAL if how == "manual" else SpanKind.SERVER
    return TRACER.start_as_current_span("request", context=CALLER.extract(headers), kind=kind)


@contextlib.contextmanager
def current(what):
    """Make a context current."""
    token = context.attach(what)
    yield
    context.detach(token)


class Handler(BaseHTTPRequestHandler):
    """Serves `/work/ID/TIMES/HOW`."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Work, and say in which spans."""
        _, _, request, times, how = self.path.split("/")
        with span_for({k.lower(): v for k, v in self.headers.items()}, how):
            said = " ".join(work(int(request), int(times), how)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


async def async_work(request: int, times: int, how: str) -> list[str]:
    """Do a request's work in an event loop."""
    loop = asyncio.get_running_loop()
    if how == "inner":
        with TRACER.start_as_current_span("inner"):
            await asyncio.sleep(0)
            return [launch(request, times)]
    if how == "two":
        first = launch(request, times)
        with TRACER.start_as_current_span("second"):
            await asyncio.sleep(0.001)
            return [first, launch(request, times)]
    if how == "thread":
        here = contextvars.copy_context()
        return [await loop.run_in_executor(POOL, here.run, launch, request, times)]
    if how == "task":
        return [await asyncio.ensure_future(async_launch(request, times))]
    if how == "gather":
        return list(await asyncio.gather(*(async_launch(request, 1) for _ in range(times))))
    if how == "pauses":
        await pausing.pauses(request, times)
        return [name(trace.get_current_span())]
    if how == "lingers":
        await pausing.lingers()
        return []
    if how == "variables":
        for number, variable in enumerate(MANY):
            variable.set(number)
    return [await async_launch(request, times)]


async def async_launch(request: int, times: int) -> str:
    """Launch after others had their turn."""
    await asyncio.sleep(0)
    return launch(request, times)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a connection, each request in a task of its own, as frameworks do."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
            said = await asyncio.ensure_future(answer(lines[0].split()[1], headers))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
            await writer.drain()
    writer.close()


async def answer(path: str, headers: dict[str, str]) -> bytes:
    """Work for a request, and say in which spans."""
    _, _, request, times, how = path.split("/")
    with span_for(headers, how):
        return " ".join(await async_work(int(request), int(times), how)).encode()


async def run() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    gpu.say(event="ready", port=server.sockets[0].getsockname()[1])
    await server.serve_forever()


def main() -> None:
    gpu.start()
    gpu.say_launches_at_end()
    if "publishes" in sys.argv:
        from otel_gpu import context as observed

        observed.publish()
    with TRACER.start_as_current_span("life") if "inside" in sys.argv else contextlib.nullcontext():
        if sys.argv[1] == "asyncio":
            asyncio.run(run())
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        gpu.say(event="ready", port=server.server_address[1])
        server.serve_forever()


if __name__ == "__main__":
    main()
    os._exit(0)
