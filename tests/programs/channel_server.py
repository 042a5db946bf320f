"""A server that makes no call of the driver: what a request asks for, it hands on to an engine over a plain channel.

usage: channel_server.py CHANNEL ENGINE DIRECTORY [--asyncio]

CHANNEL: `tcp`, `unix`, `seqpacket` (a connection for each thread), `pair`, `dgram` (socketpairs that the engine inherits, from
which threads take one), `pipe` (multiprocessing.Pipe), `fresh` (a connection for each request). ENGINE is how channel_engine.py reads.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from servers.many_clients import Server

MESSAGE_BYTES = 64
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
        self._place = places[0]
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
            return socket.create_connection(("127.0.0.1", int(self._place)))
        kind = socket.SOCK_SEQPACKET if self._kind == "seqpacket" else socket.SOCK_STREAM
        channel = socket.socket(socket.AF_UNIX, kind)
        channel.connect(self._place)
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


class Handler(BaseHTTPRequestHandler):
    """Serves `/work/ID/TIMES/HOW`."""

    protocol_version = "HTTP/1.1"
    channels: Channels

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
    Handler.channels = Channels(kind, engine, Path(directory))
    server = Server(("127.0.0.1", 0), Handler)
    print(json.dumps({"event": "ready", "port": server.server_port, "engine": Handler.channels.engine.pid}), flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    Handler.channels.engine.terminate()
    out, _ = Handler.channels.engine.communicate()
    print(json.dumps({"event": "end", "launches": json.loads(out.splitlines()[-1])["launches"]}), flush=True)


if __name__ == "__main__":
    main()
