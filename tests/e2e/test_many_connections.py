"""Does every launch go to its request where there are thousands of connections, and do those of one program take from another?"""

from __future__ import annotations

import os
import resource
import selectors
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from otel_gpu.bpf.object import BpfObject
from otel_gpu.receivers.inference.receiver import InferenceReceiver
from tests.e2e.processes import DEADLINE_S
from tests.e2e.requests import LAUNCHES, Following
from tests.e2e.test_requests import Load, Verdict, end, judge, owned, server

AT_ONCE, EACH = 1_000, 4
ROOM = 4096
"""Of the table of connections; the product's is sixteen times as large, and its shares are the same."""
IDLE, OTHERS = ROOM // 2 + 1_000, 1_000
"""Connections, and what else the programs and this one have open."""


@pytest.fixture(autouse=True)
def descriptors() -> Iterator[None]:
    """Let this process and the servers that it starts have the descriptors that they need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Tests before these may have left more open in this process than others is for.
    wanted = IDLE + OTHERS + len(os.listdir("/proc/self/fd"))
    if hard not in (resource.RLIM_INFINITY, max(wanted, hard)):
        pytest.skip(f"no more than {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, soft), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the kernel remember fewer connections."""
    load = BpfObject.load

    def load_small(self: BpfObject, **options: Any) -> None:
        if self.name.startswith(("cuda", "inference")):
            self.configure_map("connections", max_entries=ROOM)
        load(self, **options)

    monkeypatch.setattr(BpfObject, "load", load_small)


class _Client:
    """Asks over many connections at once, each of which is kept for the next request, as wrk does."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._stack = ExitStack()

    def __enter__(self) -> _Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def connect(self) -> socket.socket:
        return self._stack.enter_context(socket.create_connection(("127.0.0.1", self._load.port), DEADLINE_S))

    def ask_all(self, connections: list[socket.socket], each: int) -> None:
        """Have every connection ask so often, all of them at the same time."""
        with selectors.EpollSelector() as selector:
            left = dict.fromkeys(connections, each)
            answered = dict.fromkeys(connections, b"")
            for connection in connections:
                selector.register(connection, selectors.EVENT_READ)
                connection.sendall(self._request())
            while left:
                ready = selector.select(DEADLINE_S)
                assert ready, f"{len(left)} connections are not answered"
                for key, _ in ready:
                    connection = key.fileobj
                    assert isinstance(connection, socket.socket)
                    part = connection.recv(65_536)
                    assert part, "the server has hung up"
                    answered[connection] += part
                    if not _is_whole(answered[connection]):
                        continue
                    answered[connection] = b""
                    left[connection] -= 1
                    if left[connection]:
                        connection.sendall(self._request())
                    else:
                        del left[connection]
                        selector.unregister(connection)

    def _request(self) -> bytes:
        _, path, _ = self._load.next()
        return f"GET {path} HTTP/1.1\r\nHost: here:{self._load.port}\r\n\r\n".encode()


def _is_whole(answer: bytes) -> bool:
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found:
        return False
    assert head.startswith(b"HTTP/1.1 200"), head
    if b"chunked" in head:
        return body.endswith(b"0\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    )
    return len(body) == length


def test_a_thousand_connections_that_ask_at_once_are_charged_right(tmp_path: Path) -> None:
    with server(tmp_path, "asgi", "uvloop", "httptools") as (program, port), Following([program.pid]) as following:
        following.wait_followed()
        load = Load(port, ("plain", "awaits"), bodies=False)
        with _Client(load) as client:
            connections = [client.connect() for _ in range(AT_ONCE)]
            client.ask_all(connections, EACH)
            following.wait_spans(AT_ONCE * EACH)
        end(program, following)

        assert judge(following, load) == Verdict(sum(load.asked.values()), 0, 0)
        assert owned(following) + sum(following.unattributed().values()) == following.launches()


@pytest.mark.usefixtures("small_table")
def test_more_open_connections_than_a_programs_share_take_nothing_from_another_program(tmp_path: Path) -> None:
    with (
        server(tmp_path, "asgi", "uvloop", "httptools") as (hog, crowded),
        server(tmp_path, "asgi", "uvloop", "httptools") as (program, port),
        Following([hog.pid, program.pid]) as following,
    ):
        following.wait_followed()
        idle, load = Load(crowded, ("plain",), bodies=False), Load(port, ("plain", "awaits"), bodies=False)
        with _Client(idle) as many, _Client(load) as client:
            held = [many.connect() for _ in range(IDLE)]
            # A connection is remembered from its first request on. Not all at once: of requests a program has its share.
            for first in range(0, IDLE, AT_ONCE):
                many.ask_all(held[first : first + AT_ONCE], 1)
            entries, capacity = _connections(following.requests)
            assert (entries, capacity) == (ROOM // 2, ROOM)
            client.ask_all([client.connect() for _ in range(50)], 10)
            # Of connections beyond its share nothing is told.
            following.wait_spans(ROOM // 2 + 500)
        end(program, following)

        mine = {n: int(dict(s.attributes).get(LAUNCHES, 0)) for n, s in _spans_of(following, port).items()}  # type: ignore[call-overload]
        assert mine == load.asked


def _connections(receiver: InferenceReceiver) -> tuple[int, int]:
    return receiver.fill()["connections"]


def _spans_of(following: Following, port: int) -> dict[int, object]:
    found = {}
    for span in following.servers:
        attributes = dict(span.attributes)
        if attributes["server.port"] == port or attributes.get("network.local.port") == port:
            found[int(str(attributes["url.path"]).split("/")[2])] = span
    return found
