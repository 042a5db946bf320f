"""Does every launch go to its request where that comes over TLS? Servers with OpenSSL, on sockets and in memory."""

from __future__ import annotations

import functools
import http.client
import ssl
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.certificates import certificate, unchecked
from tests.e2e.requests import LAUNCHES, Following, Observer
from tests.e2e.test_requests import (
    ASYNC,
    THREADED,
    Load,
    Verdict,
    asked_of_gunicorn,
    coming_late,
    end,
    judge,
    owned,
    server,
)

__all__ = ["certificate"]


@dataclass
class SecureLoad(Load):
    """The same over TLS."""

    context: ssl.SSLContext = field(default_factory=unchecked)

    def connect(self) -> http.client.HTTPConnection:
        """Return a client's connection."""
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self.context)


@pytest.mark.parametrize(
    ("name", "arguments", "hows"),
    [
        ("threads", (), THREADED),
        ("asgi", ("asyncio", "h11"), ASYNC),
        ("asgi", ("uvloop", "httptools"), ASYNC),
    ],
    ids=["threads", "uvicorn-asyncio-h11", "uvicorn-uvloop-httptools"],
)
def test_every_launch_goes_to_its_request_over_tls(
    tmp_path: Path, observer: Observer, certificate: Path, name: str, arguments: tuple[str, ...], hows: tuple[str, ...]
) -> None:
    asked = (*arguments, "background", "tls", str(certificate))
    with server(tmp_path, name, *asked) as (program, port), Following([program.pid], observer=observer) as following:
        following.wait_followed()
        load = SecureLoad(port, hows)
        load.run(400)
        following.wait_spans(len(load.asked))
        end(program, following)

        assert judge(following, load) == Verdict(sum(load.asked.values()), 0, 0)
        assert owned(following) + sum(following.unattributed().values()) == following.launches()
        assert {dict(span.attributes)["url.scheme"] for span in following.servers} == {"https"}


def test_every_launch_of_gunicorns_workers_goes_to_its_request_over_tls(
    tmp_path: Path, observer: Observer, certificate: Path
) -> None:
    """Workers without threads are asked in clear."""
    load_of = functools.partial(SecureLoad, hows=("plain", "copies", "sse"))
    following, load, launched = asked_of_gunicorn(tmp_path, observer, ("gthread", "tls", certificate), load_of, 200)

    assert judge(following, load) == Verdict(sum(load.asked.values()), 0, 0)
    assert owned(following) == following.launches() == launched


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("threads", ()), ("asgi", ("asyncio", "h11")), ("asgi", ("uvloop", "httptools"))],
    ids=["threads", "asyncio", "uvloop"],
)
def test_what_a_request_says_over_tls_is_read_as_in_clear(
    tmp_path: Path, observer: Observer, certificate: Path, name: str, arguments: tuple[str, ...]
) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with (
        server(tmp_path, name, *arguments, "tls", str(certificate)) as (program, port),
        Following([program.pid], observer=observer) as following,
    ):
        following.wait_followed()
        load = SecureLoad(port, ("plain",))
        with closing(load.connect()) as connection:
            load.ask(connection, {"traceparent": f"00-{trace}-{parent}-01"})
            client = connection.sock.getsockname()
        following.wait_spans(1)

        (span,) = following.servers
        attributes = dict(span.attributes)
        assert (span.context.trace_id.hex(), span.parent_id.hex()) == (trace, parent)
        assert attributes["url.scheme"] == "https"
        assert attributes["http.response.status_code"] == 200
        assert attributes["http.request.body.size"] == 5000
        assert (attributes["client.address"], attributes["network.peer.port"]) == client
        assert attributes[LAUNCHES] == 2
        assert "otel_gpu.cut" not in attributes


def test_an_agent_that_comes_later_charges_what_begins_then_over_tls(tmp_path: Path, certificate: Path) -> None:
    """Sessions are open, and busy, when it comes. Servers with threads and on uvloop are asked in clear."""
    with (
        server(tmp_path, "asgi", "asyncio", "h11", "background", "tls", str(certificate)) as (program, port),
        coming_late([program.pid], SecureLoad(port, ASYNC), SecureLoad(port, ASYNC)) as late,
    ):
        late.wait_told()
        end(program, late.following)

        late.assert_nothing_wrong()
        assert late.charged_after() == late.after.asked
