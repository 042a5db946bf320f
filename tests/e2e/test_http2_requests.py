"""Are streams of HTTP/2 requests of their own, in clear and over TLS, and is nothing charged to the wrong one?"""

from __future__ import annotations

import asyncio
import itertools
import socket
from dataclasses import dataclass
from pathlib import Path

import h2.connection
import h2.events
import httpx
import pytest

from tests.e2e.certificates import certificate, unchecked
from tests.e2e.requests import LAUNCHES, Following, Observer
from tests.e2e.test_requests import LATER, Load, Verdict, coming_late, end, judge, owned, server

__all__ = ["certificate"]

HOWS = ("plain", "awaits", "gather", "to_thread", "executor", "task", "copies", "stream", "sse")


@dataclass
class Http2Load(Load):
    """Requests over HTTP/2, one after another on each client's connection."""

    scheme: str = "http"

    def client(self) -> httpx.Client:
        """Return a client, which speaks HTTP/2 without being asked to."""
        return httpx.Client(
            base_url=f"{self.scheme}://127.0.0.1:{self.port}", http1=False, http2=True, verify=unchecked(), timeout=60
        )

    def connect(self) -> httpx.Client:  # type: ignore[override]
        """Return a client, which keeps its connection."""
        return self.client()

    def ask(self, connection: httpx.Client, headers: dict[str, str] | None = None) -> int:  # type: ignore[override]
        """Make one request and return its number."""
        return self.post(connection, headers)

    def _client(self, count: int) -> None:
        with self.client() as client:
            for _ in range(count):
                self.post(client)

    def post(self, client: httpx.Client, headers: dict[str, str] | None = None) -> int:
        """Make one request and return its number."""
        number, path, body = self.next()
        answer = client.request("POST" if body else "GET", path, content=body or None, headers=headers)
        assert (answer.status_code, answer.http_version) == (200, "HTTP/2")
        return number

    async def run_at_once(self, count: int, streams: int) -> None:
        """Make so many requests on one connection, so many of them at a time."""
        async with httpx.AsyncClient(
            base_url=f"{self.scheme}://127.0.0.1:{self.port}", http1=False, http2=True, verify=unchecked(), timeout=60
        ) as client:

            async def ask() -> None:
                for _ in range(count // streams):
                    _, path, body = self.next()
                    answer = await client.request("POST" if body else "GET", path, content=body or None)
                    assert answer.status_code == 200

            await asyncio.gather(*(ask() for _ in range(streams)))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_every_launch_goes_to_its_stream(tmp_path: Path, observer: Observer, certificate: Path, scheme: str) -> None:
    asked = ("tls", str(certificate)) if scheme == "https" else ()
    with (
        server(tmp_path, "http2_server", *asked) as (program, port),
        Following([program.pid], observer=observer) as following,
    ):
        following.wait_followed()
        load = Http2Load(port, HOWS, scheme=scheme)
        load.run(200, clients=4)
        following.wait_spans(len(load.asked))
        end(program, following)

        assert judge(following, load) == Verdict(sum(load.asked.values()), 0, 0)
        assert owned(following) == following.launches()
        attributes = [dict(span.attributes) for span in following.servers]
        assert {a["url.scheme"] for a in attributes} == {scheme}
        assert {a["network.protocol.version"] for a in attributes} == {"2"}
        assert {a["http.response.status_code"] for a in attributes} == {200}
        assert {a["http.request.body.size"] for a in attributes} == {0, 5000, 10_000}


def test_streams_at_once_charge_nothing_wrongly(tmp_path: Path, observer: Observer, certificate: Path) -> None:
    with server(tmp_path, "http2_server") as (program, port), Following([program.pid], observer=observer) as following:
        following.wait_followed()
        load = Http2Load(port, HOWS)
        asyncio.run(load.run_at_once(200, 8))
        following.wait_spans(len(load.asked))
        end(program, following)

        verdict = judge(following, load)
        assert verdict.wrong == 0
        assert verdict.missing == sum(following.unattributed().values())
        assert owned(following) + sum(following.unattributed().values()) == following.launches()


def _send_half_and_go(path: str, port: int) -> None:
    """Begin a request, and close the connection once the server has read what was sent of it.

    The answer to a ping says that it has: a connection that is closed earlier may be reset before the server reads.
    """
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    headers = {":method": "POST", ":path": path, ":scheme": "http", ":authority": f"127.0.0.1:{port}"}
    connection.send_headers(1, list(headers.items()))
    connection.send_data(1, b"half")
    connection.ping(b"was-read")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as stream:
        stream.sendall(connection.data_to_send())
        while data := stream.recv(1 << 16):
            if any(isinstance(event, h2.events.PingAckReceived) for event in connection.receive_data(data)):
                return
    pytest.fail("the server closed the connection")


def test_streams_continue_their_callers_trace_and_are_cut_when_the_client_goes_away(
    tmp_path: Path, observer: Observer
) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with server(tmp_path, "http2_server") as (program, port), Following([program.pid], observer=observer) as following:
        following.wait_followed()
        load = Http2Load(port, ("plain",))
        with load.client() as client:
            for _ in range(3):  # the table of HPACK has it from the second one on
                load.post(client, {"traceparent": f"00-{trace}-{parent}-01"})
        following.wait_spans(3)
        whole = list(following.servers)
        _send_half_and_go("/work/1000/3/plain", port)
        following.wait_spans(4)

    for span in whole:
        assert (span.context.trace_id.hex(), span.parent_id.hex()) == (trace, parent)
    assert sorted(dict(s.attributes)[LAUNCHES] for s in whole) == [2, 3, 4]
    (cut,) = [span for span in following.servers if span not in whole]
    assert dict(cut.attributes)["otel_gpu.cut"] == "connection_closed"
    assert dict(cut.attributes)["http.request.body.size"] == 4


def test_an_agent_that_comes_later_charges_nothing_wrongly(tmp_path: Path) -> None:
    """Connections are open, and busy, when it comes: their streams are not followed, and new connections' are."""
    with server(tmp_path, "http2_server") as (program, port):
        before, after, fresh = (Http2Load(port, HOWS) for _ in range(3))
        with coming_late([program.pid], before, after) as late:
            fresh.numbers = itertools.count(2 * LATER)
            fresh.run(40, clients=4)
            late.after.asked.update(fresh.asked)
            late.following.wait_spans(len(fresh.asked))
            end(program, late.following)

            late.assert_nothing_wrong()
            charged = late.charged()
            missing = {n: asked for n, asked in fresh.asked.items() if charged[n] != asked}
            # A pool's threads that waited for work before the agent came take their first one unseen.
            assert {HOWS[n % len(HOWS)] for n in missing} <= {"executor", "to_thread"}
            assert len(missing) <= 4
