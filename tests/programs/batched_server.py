"""What does the server before a batched engine do? It takes HTTP requests, and makes no call of the driver.

usage: batched_server.py DIRECTORY [--server asyncio|threads] [--transport ipc|tcp] [ENGINE'S OPTION ...]

Shaped like vLLM's API server: `POST /generate` with {"tokens": n} goes to the engine process over ZeroMQ, and every token
comes back to the client as a server-sent event. The request's id is its trace id. Prints "ready" with the port and the
engine's pid, and ends with its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import queue
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import zmq
from servers.many_clients import Server

_ENGINE = Path(__file__).with_name("batched_engine.py")
_ADD = b"\0"
_IDENTITY = b"\0\0"


class Engine:
    """The engine process, and the two sockets that lead to it."""

    def __init__(self, arguments: argparse.Namespace, context: zmq.Context) -> None:
        self._arguments = arguments
        self.input, self.output = context.socket(zmq.ROUTER), context.socket(zmq.PULL)
        addresses = [self._bind(self.input, "input"), self._bind(self.output, "output")]
        command = [sys.executable, _ENGINE, *addresses, arguments.directory / "steps.jsonl", *arguments.of_engine]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def _bind(self, socket: zmq.Socket, name: str) -> str:
        if self._arguments.transport == "tcp":
            return f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"
        address = f"ipc://{self._arguments.directory}/{name}"
        socket.bind(address)
        return address

    def end(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()


def message_of(trace_parent: str, body: bytes) -> tuple[str, bytes]:
    """Return a request's id, and what the engine is told of it."""
    asked = json.loads(body)
    name = trace_parent.split("-")[1]
    told = {"id": name, "tokens": asked["tokens"], "prompt": asked.get("prompt", "")}
    if asked.get("is_late"):
        told["id"] = told.pop("id")  # behind the prompt
    return name, json.dumps(told).encode()


def say_ready(port: int, engine: Engine) -> None:
    print(json.dumps({"event": "ready", "port": port, "engine": engine.process.pid}), flush=True)


class AsyncServer:
    """An ASGI application."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import zmq.asyncio

        self.engine = Engine(arguments, zmq.asyncio.Context())
        self._to, self._from = self.engine.input, self.engine.output
        self._outputs: dict[str, asyncio.Queue[bool]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_ready = asyncio.Event()

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["path"] == "/health":
            await self._start(send, b"text/plain")
            await send({"type": "http.response.body", "body": b"well"})
        else:
            await self._generate(scope, receive, send)

    async def _live(self, receive, send) -> None:
        await receive()
        await self._to.recv_multipart()  # the engine says that it is there
        self._tasks.add(asyncio.create_task(self._take_outputs()))
        await send({"type": "lifespan.startup.complete"})
        self.is_ready.set()
        await receive()
        await self._to.send_multipart([_IDENTITY, _ADD, b""])
        for task in self._tasks:
            task.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    async def _take_outputs(self) -> None:
        while True:
            for name, is_last in json.loads(await self._from.recv()):
                if (tokens := self._outputs.get(name)) is not None:
                    tokens.put_nowait(is_last)

    async def _generate(self, scope, receive, send) -> None:
        body = (await receive())["body"]
        name, message = message_of(dict(scope["headers"])[b"traceparent"].decode(), body)
        tokens = self._outputs[name] = asyncio.Queue()
        await self._to.send_multipart([_IDENTITY, _ADD, message])
        await self._start(send, b"text/event-stream")
        is_last = False
        while not is_last:
            is_last = await tokens.get()
            await send({"type": "http.response.body", "body": b"data: token\n\n", "more_body": not is_last})
        del self._outputs[name]

    @staticmethod
    async def _start(send, kind: bytes) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})


async def serve_on_asyncio(arguments: argparse.Namespace) -> None:
    import uvicorn

    application = AsyncServer(arguments)
    config = uvicorn.Config(application, port=0, loop="asyncio", http="h11", lifespan="on", log_level="warning")
    server = uvicorn.Server(config)

    async def tell() -> None:
        await application.is_ready.wait()
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        say_ready(server.servers[0].sockets[0].getsockname()[1], application.engine)

    loop = asyncio.get_running_loop()

    def wait_for_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(setattr, server, "should_exit", True)

    threading.Thread(target=wait_for_end, daemon=True).start()
    telling = asyncio.create_task(tell())
    await server.serve()
    telling.cancel()
    application.engine.end()


def serve_by_threads(arguments: argparse.Namespace) -> None:
    engine = Engine(arguments, zmq.Context())
    outputs: dict[str, queue.Queue[bool]] = {}
    sending = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            name, message = message_of(self.headers["traceparent"], body)
            tokens = outputs[name] = queue.Queue()
            with sending:
                engine.input.send_multipart([_IDENTITY, _ADD, message])
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            is_last = False
            while not is_last:
                is_last = tokens.get()
                self.wfile.write(b"d\r\ndata: token\n\n\r\n" + (b"0\r\n\r\n" if is_last else b""))
            del outputs[name]

        def log_message(self, *_: object) -> None:
            pass

    def take_outputs() -> None:
        while True:
            for name, is_last in json.loads(engine.output.recv()):
                if (tokens := outputs.get(name)) is not None:
                    tokens.put(is_last)

    engine.input.recv_multipart()  # the engine says that it is there
    threading.Thread(target=take_outputs, daemon=True).start()
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        say_ready(server.server_address[1], engine)
        sys.stdin.read()
        server.shutdown()
    engine.input.send_multipart([_IDENTITY, _ADD, b""])
    engine.end()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--server", choices=("asyncio", "threads"), default="asyncio")
    parser.add_argument("--transport", choices=("ipc", "tcp"), default="ipc")
    arguments, arguments.of_engine = parser.parse_known_args()
    if arguments.server == "asyncio":
        asyncio.run(serve_on_asyncio(arguments))
    else:
        serve_by_threads(arguments)


if __name__ == "__main__":
    main()
