"""A server whose one thread reads what was asked on all connections, and works for all of it in steps, as an engine does.

usage: batching.py TRUTH. `/work/ID/TIMES/HOW` launches so often, a part of it in each step, beside those of the others that are in
the batch; it is answered when all is done. TRUTH gets one line a step: which requests it served, when, and what it launched.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import gpu

PAUSE_S = 0.002
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ndone\n"


@dataclass
class Asked:
    """A request that is worked for."""

    number: int
    left: int
    channel: socket.socket


class Connection:
    """A client's connection, and what it has sent so far."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self._received = b""

    def read(self) -> Asked | None:
        """Read what is there, and return a request that is whole; ConnectionError at the end."""
        if not (part := self.channel.recv(65536)):
            raise ConnectionError
        self._received += part
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return None
        lines = head.decode().split("\r\n")
        sizes = [int(line.split(":")[1]) for line in lines[1:] if line.lower().startswith("content-length:")]
        if len(body) < sum(sizes):
            return None
        self._received = body[sum(sizes) :]
        _, number, times, _ = lines[0].split(" ")[1].strip("/").split("/")
        return Asked(int(number), int(times), self.channel)


def step(batch: list[Asked], truth: Path) -> None:
    """Launch once for each request of a batch, and wait for the device."""
    began = time.time_ns()
    for asked in batch:
        gpu.launch(asked.number)
        asked.left -= 1
    time.sleep(PAUSE_S)
    gpu.wait()
    line = {"ids": [a.number for a in batch], "began": began, "ended": time.time_ns(), "launches": len(batch)}
    with truth.open("a") as file:
        file.write(json.dumps(line) + "\n")


def serve(listener: socket.socket, truth: Path) -> None:
    """Take in what is there before each step, and answer what is done after it."""
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    connections: dict[int, Connection] = {}
    batch: list[Asked] = []
    while True:
        for descriptor, _ in waiting.poll(0 if batch else None):
            if descriptor == listener.fileno():
                channel, _ = listener.accept()
                connections[channel.fileno()] = Connection(channel)
                waiting.register(channel, select.POLLIN)
                continue
            try:
                asked = connections[descriptor].read()
            except ConnectionError:
                waiting.unregister(descriptor)
                connections.pop(descriptor).channel.close()
            else:
                batch += [asked] if asked else []
        if not batch:
            continue
        step(batch, truth)
        for asked in batch:
            if not asked.left:
                asked.channel.sendall(ANSWER)
        batch = [asked for asked in batch if asked.left]


def main() -> None:
    gpu.start()
    gpu.say_launches_at_end()
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    gpu.say(event="ready", port=listener.getsockname()[1])
    serve(listener, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
