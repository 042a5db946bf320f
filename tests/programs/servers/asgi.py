"""An ASGI application on uvicorn, whose requests do GPU work in every way that asyncio has.

Arguments: the event loop (asyncio, uvloop), the parser (h11, httptools), `background` for work that is no request's, and
`tls` with a certificate's file for HTTPS.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import gpu
import pausing
import uvicorn
from many_clients import certificate_asked

POOL = ThreadPoolExecutor(4)


async def part(request: int, times: int) -> None:
    """Launch one after another, and let others run in between."""
    for _ in range(times):
        gpu.launch(request)
        await asyncio.sleep(0)


async def after(request: int, times: int) -> None:
    """Launch when the response is on its way."""
    await asyncio.sleep(0)
    gpu.launch(request, times=times)


async def work(request: int, times: int, how: str) -> None:
    """Do a request's work."""
    loop = asyncio.get_running_loop()
    match how:
        case "awaits":
            await part(request, times)
        case "gather":
            await asyncio.gather(*(part(request, 1) for _ in range(times)))
        case "to_thread":
            await asyncio.to_thread(gpu.launch, request, "serve", times)
        case "executor":
            await loop.run_in_executor(None, gpu.launch, request, "serve", times)
        case "own_pool":
            await loop.run_in_executor(POOL, gpu.launch, request, "serve", times)
        case "thread":
            done = asyncio.Event()

            def run() -> None:
                gpu.launch(request, times=times)
                loop.call_soon_threadsafe(done.set)

            threading.Thread(target=run).start()
            await done.wait()
        case "later":
            done = asyncio.Event()

            def later() -> None:
                gpu.launch(request, times=times)
                done.set()

            loop.call_later(0.002, later)
            await done.wait()
        case "task":
            await asyncio.create_task(part(request, times))
        case "parts":
            await asyncio.gather(*(part(request, 2) for _ in range(times)))
            gpu.wait()
        case "pauses":
            await asyncio.create_task(pausing.pauses(request, times))
        case "lingers":
            await pausing.lingers()
        case "launches_and_lingers":
            gpu.launch(request, times=times)
            await pausing.lingers()
        case "copies":
            gpu.launch(request, times=times)
            gpu.copy(1024)
            gpu.wait()
        case "busy":
            until = time.perf_counter() + 0.001
            while time.perf_counter() < until:
                pass
            gpu.launch(request, times=times)
        case "empty_context":
            contextvars.Context().run(gpu.launch, request, "serve", times)
        case _:
            gpu.launch(request, times=times)


async def app(scope: dict, receive, send) -> None:
    """Serve `/work/ID/TIMES/HOW`."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    _, _, request, times, how = scope["path"].split("/")
    while (await receive()).get("more_body"):
        pass
    await work(int(request), int(times), how)
    if how in ("stream", "sse"):
        kind = b"text/event-stream" if how == "sse" else b"text/plain"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        for n in range(3):
            gpu.launch(int(request))
            await send({"type": "http.response.body", "body": b"data: %d\n\n" % n, "more_body": True})
            await asyncio.sleep(0.001)
        await send({"type": "http.response.body", "body": b""})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"done\n"})
    if how == "after":
        await after(int(request), int(times))


async def lifespan(receive, send) -> None:
    await receive()
    if "background" in sys.argv:
        TASKS.add(asyncio.create_task(background()))
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


TASKS: set[asyncio.Task] = set()


async def background() -> None:
    """Work for nobody."""
    while True:
        gpu.launch(1, "background")
        await asyncio.sleep(0.002)


class Server(uvicorn.Server):
    """Says where it listens."""

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        gpu.say_launches_at_end()
        gpu.say(event="ready", port=self.servers[0].sockets[0].getsockname()[1])

    def install_signal_handlers(self) -> None:
        pass


def main() -> None:
    gpu.start()
    loop, parser = sys.argv[1:3]
    certificate = certificate_asked()
    config = uvicorn.Config(
        app,
        port=0,
        loop=loop,
        http=parser,
        log_level="error",
        timeout_keep_alive=600,
        lifespan="on",
        ssl_certfile=certificate,
        ssl_keyfile=certificate,
    )
    server = Server(config)
    server.capture_signals = contextlib.nullcontext  # the test ends it by a signal of its own
    server.run()
    os._exit(0)


if __name__ == "__main__":
    main()
