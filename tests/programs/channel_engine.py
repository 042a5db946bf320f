"""What works for the requests of another program? Messages of 64 bytes come over plain channels, answers go back the same way.

usage: channel_engine.py HOW [PLACE | DESCRIPTOR ...]

HOW is by whom messages are read: `threads` (one for each connection), `asyncio` (streams), `batch` (one thread, which reads
whatever is there from all connections before it launches), `pairs` (a thread for each descriptor that was inherited), `pipes`
(the same by multiprocessing.connection), `simplex` (the same with one descriptor to read from and one to write to), `fifos`
(likewise, by paths), `stdio` (one, which is asked on its standard input, a line each time); `serve_queue` is another process's.
PLACE is a port, or the path of a unix socket. A message says whose it is and how many launches that takes; after each
answer a launch follows that is nobody's.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import select
import signal
import socket
import sys
import threading
from multiprocessing import Queue
from multiprocessing.connection import Connection

import gpu

MESSAGE_BYTES = 64
BACKLOG = 1024
END_WITH_PARENT = 1
"""PR_SET_PDEATHSIG"""


def work(message: bytes) -> bytes:
    """Do what a message asks for, and return the answer."""
    asked = json.loads(message)
    gpu.launch(asked["id"], times=asked["times"])
    return b"done".ljust(MESSAGE_BYTES)


def received(channel: socket.socket) -> bytes:
    """Return a message; empty when no other comes."""
    message = b""
    while len(message) < MESSAGE_BYTES:
        if not (part := channel.recv(MESSAGE_BYTES - len(message))):
            return b""
        message += part
    return message


def serve(channel: socket.socket) -> None:
    """Work for one message after another."""
    while message := received(channel):
        answer = work(message)
        channel.sendall(answer)
        gpu.launch(1, "background")


def serve_connection(connection: Connection) -> None:
    """Work for one message after another, as multiprocessing sends them: a length, and pickled data."""
    while True:
        answer = work(connection.recv())
        connection.send(answer)
        gpu.launch(1, "background")


def serve_simplex(asked: Connection, answers: Connection) -> None:
    """Work for one message after another, by pipes."""
    while True:
        answer = work(asked.recv())
        answers.send(answer)
        gpu.launch(1, "background")


def serve_fifos(asked: int, answers: int) -> None:
    """Work for one message after another, by named pipes."""
    while message := os.read(asked, MESSAGE_BYTES):
        answer = work(message)
        os.write(answers, answer)
        gpu.launch(1, "background")


def serve_lines() -> None:
    """Work for one line after another."""
    for line in sys.stdin.buffer:
        answer = work(line)
        # What a program says on its standard error answers nobody.
        sys.stderr.write("working\n")
        sys.stdout.buffer.write(answer + b"\n")
        sys.stdout.buffer.flush()
        gpu.launch(1, "background")
    signal.raise_signal(signal.SIGTERM)


def serve_queue(asked: Queue, answers: Queue) -> None:
    """Work for one message after another, as multiprocessing hands them on."""
    gpu.start()
    answers.put("ready")
    while (message := asked.get()) is not None:
        work(message)
        answers.put(json.loads(message)["id"])
        gpu.launch(1, "background")
    answers.put(gpu.launched())


def serve_batches(listener: socket.socket) -> None:
    """Work for all messages that are there, together."""
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    channels: dict[int, socket.socket] = {}
    while True:
        batch = []
        for descriptor, _ in waiting.poll():
            if descriptor == listener.fileno():
                channel, _ = listener.accept()
                channels[channel.fileno()] = channel
                waiting.register(channel, select.POLLIN)
            elif message := received(channels[descriptor]):
                batch.append((channels[descriptor], message))
            else:
                waiting.unregister(descriptor)
                channels.pop(descriptor).close()
        for _, message in batch:
            work(message)
        if batch:
            gpu.wait()
        for channel, _ in batch:
            channel.sendall(b"done".ljust(MESSAGE_BYTES))


async def serve_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Work for one message after another, in a task."""
    try:
        while True:
            message = await reader.readexactly(MESSAGE_BYTES)
            asked = json.loads(message)
            for _ in range(asked["times"]):
                gpu.launch(asked["id"])
                await asyncio.sleep(0)
            writer.write(b"done".ljust(MESSAGE_BYTES))
            await writer.drain()
            gpu.launch(1, "background")
    except asyncio.IncompleteReadError:
        writer.close()


async def serve_streams(listener: socket.socket) -> None:
    """Serve with asyncio's streams."""
    server = await asyncio.start_server(serve_stream, sock=listener)
    gpu.say(event="engine")
    await server.serve_forever()


def listening(place: str) -> socket.socket:
    """Return a socket that listens at a port, or at a path."""
    if place.isdigit():
        return socket.create_server(("127.0.0.1", int(place)), backlog=BACKLOG)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET if "seqpacket" in place else socket.SOCK_STREAM)
    listener.bind(place)
    listener.listen(BACKLOG)
    return listener


def main() -> None:
    how, *places = sys.argv[1:]
    ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGTERM)
    gpu.start()
    gpu.say_launches_at_end()
    if how in ("pairs", "pipes"):
        for descriptor in map(int, places):
            if how == "pairs":
                target, channel = serve, socket.socket(fileno=descriptor)
            else:
                target, channel = serve_connection, Connection(descriptor)
            threading.Thread(target=target, args=(channel,), daemon=True).start()
        gpu.say(event="engine")
        threading.Event().wait()
    if how in ("simplex", "fifos"):
        for asked, answers in zip(places[::2], places[1::2], strict=True):
            ways: tuple[object, ...]
            if how == "simplex":
                target, ways = serve_simplex, (Connection(int(asked)), Connection(int(answers)))
            else:
                target, ways = serve_fifos, (os.open(asked, os.O_RDONLY), os.open(answers, os.O_WRONLY))
            threading.Thread(target=target, args=ways, daemon=True).start()
        gpu.say(event="engine")
        threading.Event().wait()
    if how == "stdio":
        gpu.say(event="engine")
        serve_lines()
    listener = listening(places[0])
    if how == "asyncio":
        asyncio.run(serve_streams(listener))
    gpu.say(event="engine")
    if how == "batch":
        serve_batches(listener)
    while True:
        channel, _ = listener.accept()
        threading.Thread(target=serve, args=(channel,), daemon=True).start()


if __name__ == "__main__":
    main()
