"""Servers that need the standard library alone, written for every CPython from 3.8 on, whose requests do GPU work.

The first argument: `threads`, http.server with a thread for each connection, or `streams`, a server on asyncio's streams;
with `background`, somebody launches who works for no request. `/work/ID/TIMES/HOW`: so many launches, done so.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler

import gpu
from many_clients import Server

POOL = ThreadPoolExecutor(4)
REQUEST = contextvars.ContextVar("request")
HTTP = "HTTP/1.1 200 OK\r\n"


def launch_as_set(times: int) -> None:
    """Launch for the request that the context says."""
    gpu.launch(REQUEST.get(), times=times)


def launch_by_thread(request: int, times: int, then) -> threading.Thread:
    """Launch in a thread that is made for it."""

    def run() -> None:
        gpu.launch(request, times=times)
        then()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def work(request: int, times: int, how: str) -> None:
    """Do a request's work in its thread."""
    if how == "pool":
        POOL.submit(gpu.launch, request, times=times).result()
    elif how == "map":
        list(POOL.map(lambda _: gpu.launch(request), range(times)))
    elif how == "thread":
        launch_by_thread(request, times, lambda: None).join()
    elif how == "context":
        REQUEST.set(request)
        contextvars.copy_context().run(launch_as_set, times)
    elif how == "pool_context":
        REQUEST.set(request)
        POOL.submit(contextvars.copy_context().run, launch_as_set, times).result()
    elif how == "copies":
        gpu.launch(request, times=times)
        gpu.copy(1024)
        gpu.wait()
    else:
        gpu.launch(request, times=times)


class Handler(BaseHTTPRequestHandler):
    """Answers with a length, or in chunks."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        _, _, request, times, how = self.path.split("/")
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        work(int(request), int(times), how)
        if how == "chunks":
            self.wfile.write((HTTP + "Transfer-Encoding: chunked\r\n\r\n").encode())
            for n in range(3):
                gpu.launch(int(request))
                self.wfile.write(b"6\r\npart%d\n\r\n" % n)
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.wfile.write((HTTP + "Content-Length: 5\r\n\r\ndone\n").encode())

    def do_POST(self) -> None:
        self.do_GET()


async def in_thread(call, *arguments):
    """Call in a thread of the default executor, in a copy of the context: asyncio.to_thread, which 3.8 lacks."""
    if hasattr(asyncio, "to_thread"):
        return await asyncio.to_thread(call, *arguments)
    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(None, run, call, *arguments)


async def part(request: int, times: int) -> None:
    """Launch one after another, and let others run in between."""
    for _ in range(times):
        gpu.launch(request)
        await asyncio.sleep(0)


async def await_work(request: int, times: int, how: str) -> None:
    """Do a request's work in its task."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def later() -> None:
        gpu.launch(request, times=times)
        done.set()

    if how == "awaits":
        await part(request, times)
    elif how == "gather":
        await asyncio.gather(*(part(request, 1) for _ in range(times)))
    elif how == "task":
        await asyncio.create_task(part(request, times))
    elif how == "to_thread":
        REQUEST.set(request)
        await in_thread(launch_as_set, times)
    elif how == "executor":
        await loop.run_in_executor(None, gpu.launch, request, "serve", times)
    elif how == "own_pool":
        await loop.run_in_executor(POOL, gpu.launch, request, "serve", times)
    elif how == "thread":
        launch_by_thread(request, times, lambda: loop.call_soon_threadsafe(done.set))
        await done.wait()
    elif how == "soon":
        loop.call_soon(later)
        await done.wait()
    elif how == "later":
        loop.call_later(0.002, later)
        await done.wait()
    elif how == "context":
        REQUEST.set(request)
        contextvars.copy_context().run(launch_as_set, times)
    elif how == "variable":
        REQUEST.set(request)
        await asyncio.sleep(0.001)
        launch_as_set(times)
    elif how == "copies":
        gpu.launch(request, times=times)
        gpu.copy(1024)
        gpu.wait()
    else:
        gpu.launch(request, times=times)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection's requests, all of them in its own task."""
    while True:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except (asyncio.IncompleteReadError, ConnectionError):
            break
        _, _, request, times, how = head.split()[1].split("/")
        for line in head.lower().split("\r\n"):
            if line.startswith("content-length:"):
                await reader.readexactly(int(line.split(":")[1]))
        if how.startswith("own_"):
            await asyncio.create_task(await_work(int(request), int(times), how))
        else:
            await await_work(int(request), int(times), how)
        if how == "stream":
            writer.write((HTTP + "Transfer-Encoding: chunked\r\n\r\n").encode())
            for n in range(3):
                gpu.launch(int(request))
                writer.write(b"6\r\npart%d\n\r\n" % n)
                await writer.drain()
                await asyncio.sleep(0.001)
            writer.write(b"0\r\n\r\n")
        else:
            writer.write((HTTP + "Content-Length: 5\r\n\r\ndone\n").encode())
        await writer.drain()
    writer.close()


async def serve_streams() -> None:
    """Serve until the end."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    gpu.say(event="ready", port=server.sockets[0].getsockname()[1])
    await server.serve_forever()


def serve_threads() -> None:
    """Serve until the end."""
    server = Server(("127.0.0.1", 0), Handler)
    gpu.say(event="ready", port=server.server_port)
    server.serve_forever()


def background() -> None:
    """Launch all the time."""
    while True:
        gpu.launch(1, "background")
        time.sleep(0.02)


def main() -> None:
    gpu.start()
    gpu.say_launches_at_end()
    if "background" in sys.argv:
        threading.Thread(target=background, daemon=True).start()
    if sys.argv[1] == "streams":
        asyncio.run(serve_streams())
    else:
        serve_threads()


if __name__ == "__main__":
    main()
