"""The ASGI application of asgi.py on hypercorn, over HTTP/2 as well. Argument: `tls` and a certificate's file."""

from __future__ import annotations

import asyncio
import os
import socket

import gpu
from asgi import app
from hypercorn.asyncio import serve
from hypercorn.config import Config
from many_clients import certificate_asked


async def main() -> None:
    gpu.start()
    gpu.say_launches_at_end()
    listening = socket.create_server(("127.0.0.1", 0))
    config = Config()
    config.keep_alive_max_requests = 1_000_000  # connections are kept for as long as tests are busy on them
    config.bind = [f"fd://{os.dup(listening.fileno())}"]
    config.certfile = config.keyfile = certificate_asked()
    gpu.say(event="ready", port=listening.getsockname()[1])
    await serve(app, config, shutdown_trigger=asyncio.Event().wait)


if __name__ == "__main__":
    asyncio.run(main())
