"""A server on aiohttp, whose requests do GPU work in every way that asyncio has. Argument: the event loop."""

from __future__ import annotations

import asyncio
import sys

import gpu
from aiohttp import web
from asgi import background, work

TASKS: set[asyncio.Task] = set()


async def serve(request: web.Request) -> web.StreamResponse:
    """Serve `/work/ID/TIMES/HOW`."""
    number, times, how = int(request.match_info["id"]), int(request.match_info["times"]), request.match_info["how"]
    await request.read()
    await work(number, times, how)
    if how in ("stream", "sse"):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream" if how == "sse" else "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for n in range(3):
            gpu.launch(number)
            await response.write(b"data: %d\n\n" % n)
            await asyncio.sleep(0.001)
        await response.write_eof()
        return response
    return web.Response(body=b"done\n")


async def run() -> None:
    app = web.Application(client_max_size=1 << 20)
    app.router.add_route("*", "/work/{id}/{times}/{how}", serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    if "background" in sys.argv:
        TASKS.add(asyncio.create_task(background()))
    gpu.say_launches_at_end()
    gpu.say(event="ready", port=site._server.sockets[0].getsockname()[1])
    await asyncio.Event().wait()


def main() -> None:
    gpu.start()
    if sys.argv[1] == "uvloop":
        import uvloop

        uvloop.run(run())
    else:
        asyncio.run(run())


if __name__ == "__main__":
    main()
