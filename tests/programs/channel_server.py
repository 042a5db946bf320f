"""A server that makes no call of the driver: what a request asks for, it hands on to an engine over a plain channel.

usage: channel_server.py CHANNEL ENGINE DIRECTORY [--asyncio]

CHANNEL: `tcp`, `unix`, `seqpacket` (a connection for each thread), `pair`, `dgram` (socketpairs that the engine inherits, from
which threads take one), `pipe` (multiprocessing.Pipe), `simplex` (two pipes in place of it), `fifo` (two named ones), `stdio` (the
engine's standard input and output, for one request at a time), `queue` (multiprocessing.Queue), `locked` (its SimpleQueue),
`pool` (its Pool), `executor` (concurrent.futures.ProcessPoolExecutor), `fresh` (a connection for each request). ENGINE is how
channel_engine.py reads.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.queues import Queue, SimpleQueue
from pathlib import Path
from typing import TypeVar

from servers.many_clients import Server

MESSAGE_BYTES = 64
Result = TypeVar("Result")
PAIRS = 4
INHERITED = ("pair", "dgram", "pipe")


def received(channel: socket.socket) -> bytes:
    message = b""
    while len(message) < MESSAGE_BYTES:
        if not (part := channel.recv(MESSAGE_BYTES - len(message))):
            raise OSError("the engine is gone")
        message += part
    return message


class Channels:
    """The ways to the engine."""

    def __init__(self, kind: str, engine: str, directory: Path) -> None:
        self._kind = kind
        self._mine = threading.local()
        self._free: queue.Queue[socket.socket | Connection] = queue.Queue()
        places: list[str] = []
        inherited: list[socket.socket | Connection] = []
        if kind in INHERITED:
            for _ in range(PAIRS):
                if kind == "pipe":
                    ours, theirs = Pipe()
                else:
                    ours, theirs = socket.socketpair(type=socket.SOCK_STREAM if kind == "pair" else socket.SOCK_DGRAM)
                self._free.put(ours)
                inherited.append(theirs)
                places.append(str(theirs.fileno()))
        elif kind in ("tcp", "fresh"):
            with socket.create_server(("127.0.0.1", 0)) as taken:
                places = [str(taken.getsockname()[1])]
        else:
            places = [str(directory / kind)]
        self.place = places[0]
        command = [sys.executable, str(Path(__file__).with_name("channel_engine.py")), engine, *places]
        path = os.pathsep.join([str(Path(__file__).parent / "servers"), os.environ.get("PYTHONPATH", "")])
        self.engine = subprocess.Popen(
            command,
            pass_fds=[one.fileno() for one in inherited],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
        )
        for one in inherited:
            one.close()
        assert self.engine.stdout is not None
        self.engine.stdout.readline()

    def _connected(self) -> socket.socket:
        if self._kind in ("tcp", "fresh"):
            return socket.create_connection(("127.0.0.1", int(self.place)))
        kind = socket.SOCK_SEQPACKET if self._kind == "seqpacket" else socket.SOCK_STREAM
        channel = socket.socket(socket.AF_UNIX, kind)
        channel.connect(self.place)
        return channel

    def ask(self, number: int, times: int) -> None:
        """Have the engine work, and wait for its answer."""
        message = json.dumps({"id": number, "times": times}).encode().ljust(MESSAGE_BYTES)
        if self._kind in INHERITED:
            channel = self._free.get()
        elif self._kind == "fresh":
            channel = self._connected()
        else:
            if not hasattr(self._mine, "channel"):
                self._mine.channel = self._connected()
            channel = self._mine.channel
        if isinstance(channel, Connection):
            channel.send(message)
            channel.recv()
        else:
            channel.sendall(message)
            received(channel)
        if self._kind in INHERITED:
            self._free.put(channel)
        elif self._kind == "fresh":
            channel.close()

    def end(self) -> int:
        """End the engine, and return how many launches it made."""
        self.engine.terminate()
        out, _ = self.engine.communicate()
        return int(json.loads(out.splitlines()[-1])["launches"])


class Pipes:
    """Pipes to the engine, one there and one back."""

    def __init__(self, kind: str, engine: str, directory: Path) -> None:
        self._free: queue.Queue[tuple[object, object]] = queue.Queue()
        places: list[str] = []
        theirs: list[Connection] = []
        for number in range(PAIRS if kind != "stdio" else 0):
            if kind == "simplex":
                (asked, ours), (answers, back) = Pipe(duplex=False), Pipe(duplex=False)
                theirs += asked, back
                places += str(asked.fileno()), str(back.fileno())
                self._free.put((ours, answers))
            else:
                paths = [str(directory / f"{number}-{way}") for way in ("asked", "answers")]
                for path in paths:
                    os.mkfifo(path)
                places += paths
        python_path = os.pathsep.join([str(Path(__file__).parent / "servers"), os.environ.get("PYTHONPATH", "")])
        self.engine = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("channel_engine.py")), engine, *places],
            pass_fds=[one.fileno() for one in theirs],
            env={**os.environ, "PYTHONPATH": python_path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for one in theirs:
            one.close()
        for asked_at, answers_at in zip(places[::2], places[1::2], strict=True) if kind == "fifo" else ():
            self._free.put((os.open(asked_at, os.O_WRONLY), os.open(answers_at, os.O_RDONLY)))
        self.engine.stdout.readline()
        if kind == "stdio":
            self._free.put((self.engine.stdin, self.engine.stdout))

    def ask(self, number: int, times: int) -> None:
        """Have the engine work, and wait for its answer."""
        message = json.dumps({"id": number, "times": times}).encode().ljust(MESSAGE_BYTES)
        ours, answers = self._free.get()
        if isinstance(ours, Connection):
            ours.send(message)
            answers.recv()
        elif isinstance(ours, int):
            os.write(ours, message)
            os.read(answers, MESSAGE_BYTES)
        else:
            ours.write(message + b"\n")
            ours.flush()
            answers.readline()
        self._free.put((ours, answers))

    def end(self) -> int:
        """End the engine, and return how many launches it made."""
        self.engine.terminate()
        out, _ = self.engine.communicate()
        return int(json.loads(out.splitlines()[-1])["launches"])


class Queues:
    """A queue to the engine, and one back: threads of multiprocessing's send what others put in."""

    def __init__(self) -> None:
        sys.path.insert(0, str(Path(__file__).parent / "servers"))
        import channel_engine

        spawning = get_context("spawn")
        self._asked, self._answers = self._made(spawning)
        self._answered: dict[int, threading.Event] = {}
        self.engine = spawning.Process(target=channel_engine.serve_queue, args=(self._asked, self._answers))
        self.engine.start()
        self._answers.get()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _made(self, spawning: SpawnContext) -> tuple[Queue, Queue]:
        return spawning.Queue(), spawning.Queue()

    def _read(self) -> None:
        while (number := self._answers.get()) in self._answered:
            self._answered[number].set()
        self._launches = number

    def ask(self, number: int, times: int) -> None:
        """Have the engine work, and wait for its answer."""
        self._answered[number] = threading.Event()
        self._asked.put(json.dumps({"id": number, "times": times}).encode())
        self._answered[number].wait()

    def end(self) -> int:
        """End the engine, and return how many launches it made."""
        self._answered.clear()
        self._asked.put(None)
        self._reader.join()
        self.engine.join()
        return self._launches


class LockedQueues(Queues):
    """The same where whoever puts something in sends it, one at a time."""

    def _made(self, spawning: SpawnContext) -> tuple[SimpleQueue, SimpleQueue]:
        return spawning.SimpleQueue(), spawning.SimpleQueue()


@dataclass(frozen=True)
class Worker:
    """A process of a pool."""

    pid: int


class Workers:
    """A pool of one process: threads of the pool's own hand on what others ask for."""

    def __init__(self, kind: str) -> None:
        sys.path.insert(0, str(Path(__file__).parent / "servers"))
        import channel_engine
        import gpu

        spawning = get_context("spawn")
        self._work, self._launched = channel_engine.work, gpu.launched
        self._pool = spawning.Pool(1, gpu.start) if kind == "pool" else ProcessPoolExecutor(1, spawning, gpu.start)
        self.engine = Worker(self._run(os.getpid))

    def ask(self, number: int, times: int) -> None:
        """Have the engine work, and wait for its answer."""
        self._run(self._work, json.dumps({"id": number, "times": times}).encode())

    def _run(self, function: Callable[..., Result], *arguments: object) -> Result:
        if isinstance(self._pool, ProcessPoolExecutor):
            return self._pool.submit(function, *arguments).result()
        return self._pool.apply(function, arguments)

    def end(self) -> int:
        """Return how many launches the engine made."""
        return self._run(self._launched)


Ways = Channels | Pipes | Queues | Workers


class Handler(BaseHTTPRequestHandler):
    """Serves `/work/ID/TIMES/HOW`."""

    protocol_version = "HTTP/1.1"
    channels: Ways

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        _, _, request, times, _ = self.path.split("/")
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.channels.ask(int(request), int(times))
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"done\n")

    def do_POST(self) -> None:
        self.do_GET()


def main() -> None:
    kind, engine, directory = sys.argv[1:4]
    channels: Ways
    if kind in ("queue", "locked"):
        channels = Queues() if kind == "queue" else LockedQueues()
    elif kind in ("pool", "executor"):
        channels = Workers(kind)
    elif kind in ("simplex", "fifo", "stdio"):
        channels = Pipes(kind, engine, Path(directory))
    else:
        channels = Channels(kind, engine, Path(directory))
    Handler.channels = channels
    server = Server(("127.0.0.1", 0), Handler)
    ready = {"event": "ready", "port": server.server_port, "engine": channels.engine.pid}
    print(json.dumps({**ready, "place": getattr(channels, "place", None)}), flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    print(json.dumps({"event": "end", "launches": channels.end()}), flush=True)


if __name__ == "__main__":
    main()
