"""Does every launch go to the request that asked for it? Servers whose requests say how many launches are theirs."""

from __future__ import annotations

import functools
import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from otel_gpu.signals.spans import Span, SpanKind
from tests.e2e import ground, liar
from tests.e2e.exported import read_metrics
from tests.e2e.processes import DEADLINE_S, Agent, Program
from tests.e2e.requests import LAUNCHES, UNATTRIBUTED, Following, Observer
from tests.span_reading import read_spans
from tests.waiting import until

SERVERS = ground.PROGRAMS / "servers"
CLIENTS = 8
THREADED = ("plain", "pool", "thread", "copies", "chunks")
ASYNC = (
    "awaits",
    "gather",
    "to_thread",
    "executor",
    "own_pool",
    "thread",
    "later",
    "task",
    "copies",
    "stream",
    "sse",
    "plain",
)
BY_NEW_THREADS = {"thread"}
"""In these ways a request starts a thread of its own. CPython has that tell its maker that it has begun, under a lock that the maker
holds for a moment as well: who has to wait there, as happens on a busy host, waits as a pool's thread does for other work,
and no probe sees the difference. So all that such a thread launches is nobody's."""
STREAMED = {"chunks": 3, "stream": 3, "sse": 3}
"""Launches while the response is sent."""


@dataclass
class Load:
    """Requests that clients have made, and how many launches are each one's."""

    port: int
    hows: Sequence[str]
    asked: dict[int, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    bodies: bool = True

    def run(self, count: int, clients: int = CLIENTS) -> None:
        """Make so many requests, each client over a connection of its own that it keeps."""
        threads = [threading.Thread(target=self._client, args=(count // clients,)) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def connect(self) -> http.client.HTTPConnection:
        """Return a client's connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def _client(self, count: int) -> None:
        connection = self.connect()
        for _ in range(count):
            self.ask(connection)
        connection.close()

    def ask(self, connection: http.client.HTTPConnection, headers: dict[str, str] | None = None) -> int:
        """Make one request and return its number."""
        number, path, body = self.next()
        connection.request("POST" if body else "GET", path, body or None, headers or {})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        return number

    def next(self) -> tuple[int, str, bytes]:
        """Return number, path and body of another request."""
        with self.lock:
            number = next(self.numbers)
        how, times = self.hows[number % len(self.hows)], number % 7 + 1
        body = b"x" * (number % 3 * 5000) if self.bodies else b""
        self.asked[number] = times + STREAMED.get(how, 0)
        return number, f"/work/{number}/{times}/{how}", body


@dataclass(frozen=True)
class Verdict:
    """Launches, by whether they went where they belong."""

    right: int
    wrong: int
    missing: int


def number_of(span: Span) -> int:
    """Return the number of a request; 0 for what has none."""
    return int(str(dict(span.attributes).get("url.path", "/work/0")).split("/")[2])


def judge(servers: Following | Sequence[Span], load: Load) -> Verdict:
    """Compare what requests were charged with what they did."""
    spans = servers.servers if isinstance(servers, Following) else servers
    charged: Counter[int] = Counter()
    for span in spans:
        charged[number_of(span)] += int(dict(span.attributes).get(LAUNCHES, 0))  # type: ignore[call-overload]
    assert len(spans) == len(load.asked)
    return Verdict(
        sum(min(n, load.asked[number]) for number, n in charged.items()),
        sum(max(n - load.asked[number], 0) for number, n in charged.items()),
        sum(max(n - charged[number], 0) for number, n in load.asked.items()),
    )


def missing_of(spans: Sequence[Span], load: Load) -> dict[int, tuple[str, int]]:
    charged = {number_of(span): int(str(dict(span.attributes).get(LAUNCHES, 0))) for span in spans}
    return {n: (load.hows[n % len(load.hows)], charged[n]) for n, asked in load.asked.items() if charged[n] < asked}


def assert_missing_by_new_threads_alone(spans: Sequence[Span], load: Load) -> None:
    """Check that requests have all that they asked for, but for what some of the threads did that they started."""
    missing = missing_of(spans, load)
    assert {n: found for n, found in missing.items() if found[0] not in BY_NEW_THREADS or found[1]} == {}
    assert len(missing) < max(sum(load.hows[n % len(load.hows)] in BY_NEW_THREADS for n in load.asked), 1)


@contextmanager
def server(directory: Path, name: str, *arguments: str) -> Iterator[tuple[Program, int]]:
    """Run a server, and say on which port it listens."""
    with Program([sys.executable, SERVERS / f"{name}.py", *arguments], directory) as program:
        yield program, int(str(program.event("ready")["port"]))


def end(program: Program, following: Following) -> int:
    """End a server, take what is left, and return how many launches it says it made."""
    program.process.send_signal(signal.SIGTERM)
    launched = int(str(program.event("end")["launches"]))
    # What is launched while counts are read would be in some of them only.
    program.process.wait(DEADLINE_S)
    following.end()
    return launched


def owned(following: Following) -> int:
    return sum(int(dict(span.attributes).get(LAUNCHES, 0)) for span in following.servers)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("name", "arguments", "hows"),
    [
        ("threads", (), THREADED),
        ("asgi", ("asyncio", "h11"), ASYNC),
        ("asgi", ("uvloop", "httptools"), ASYNC),
        ("aiohttp_server", ("asyncio",), ASYNC),
    ],
    ids=["threads", "uvicorn-asyncio-h11", "uvicorn-uvloop-httptools", "aiohttp"],
)
def test_every_launch_goes_to_its_request(
    tmp_path: Path, observer: Observer, name: str, arguments: tuple[str, ...], hows: Sequence[str]
) -> None:
    with (
        server(tmp_path, name, *arguments, "background") as (program, port),
        Following([program.pid], observer=observer) as following,
    ):
        following.wait_followed()
        load = Load(port, hows)
        load.run(600)
        following.wait_spans(len(load.asked))
        end(program, following)

        verdict = judge(following, load)
        assert verdict.wrong == 0
        assert_missing_by_new_threads_alone(following.servers, load)
        # What nobody asked for is nobody's, and nothing is counted twice or left out.
        assert owned(following) + sum(following.unattributed().values()) == following.launches()
        assert following.unattributed()


def test_aiohttp_on_uvloop_charges_nothing_wrongly(tmp_path: Path, observer: Observer) -> None:
    """Of each connection the first request is not known: its task's context is made before anything is read."""
    with (
        server(tmp_path, "aiohttp_server", "uvloop") as (program, port),
        Following([program.pid], observer=observer) as following,
    ):
        following.wait_followed()
        load = Load(port, ASYNC)
        load.run(400)
        following.wait_spans(len(load.asked))
        end(program, following)

        verdict = judge(following, load)
        assert verdict.wrong == 0
        first = sum(sorted(load.asked.values())[-CLIENTS:])
        assert verdict.missing <= first
        assert owned(following) + sum(following.unattributed().values()) == following.launches()


@contextmanager
def compiled(directory: Path, how: str) -> Iterator[tuple[Program, int]]:
    """Run the server that has no Python."""
    program_file = directory / "threads"
    source = SERVERS / "threads.c"
    subprocess.run(["gcc", "-O2", "-o", program_file, source, "-lpthread", "-ldl"], check=True)
    with Program([program_file, how], directory) as program:
        yield program, int(str(program.event("ready")["port"]))


def test_threads_without_python_own_what_they_read(tmp_path: Path, observer: Observer) -> None:
    with compiled(tmp_path, "blocking") as (program, port), Following([program.pid], observer=observer) as following:
        following.wait_followed()
        load = Load(port, ("plain",), bodies=False)
        load.run(400)
        following.wait_spans(400)
        launched = end(program, following)

    assert judge(following, load) == Verdict(right=launched, wrong=0, missing=0)
    assert following.launches() == launched


@pytest.mark.parametrize("how", ["relay", "unseen"])
def test_threads_that_hand_requests_to_each_other_own_nothing(tmp_path: Path, observer: Observer, how: str) -> None:
    with compiled(tmp_path, how) as (program, port), Following([program.pid], observer=observer) as following:
        following.wait_followed()
        load = Load(port, ("plain",), bodies=False)
        load.run(400)
        following.wait_spans(400)
        launched = end(program, following)

    verdict = judge(following, load)
    assert verdict.wrong == 0
    assert owned(following) + sum(following.unattributed().values()) == following.launches() == launched


def asked_of_gunicorn(
    directory: Path, observer: Observer, arguments: tuple[object, ...], load_of: Callable[[int], Load], requests: int
) -> tuple[Following, Load, int]:
    """Ask gunicorn's two workers; return who followed them to their end, what they were asked, and what they launched."""
    with Program([sys.executable, SERVERS / "gunicorn_server.py", *arguments], directory) as program:
        workers = [program.event("worker") for _ in range(2)]
        with Following([int(str(w["pid"])) for w in workers], observer=observer) as following:
            following.wait_followed()
            load = load_of(int(str(workers[0]["port"])))
            load.run(requests)
            following.wait_spans(len(load.asked))
            program.process.send_signal(signal.SIGTERM)
            launched = sum(int(str(program.event("worker_end")["launches"])) for _ in workers)
            following.end()
            return following, load, launched


def test_every_launch_of_gunicorns_workers_goes_to_its_request(tmp_path: Path, observer: Observer) -> None:
    """Workers with threads are asked over TLS."""
    load_of = functools.partial(Load, hows=("plain", "copies", "sse"))
    following, load, launched = asked_of_gunicorn(tmp_path, observer, ("sync",), load_of, 400)

    assert judge(following, load) == Verdict(sum(load.asked.values()), 0, 0)
    assert owned(following) == following.launches() == launched
    assert following.unattributed() == {}


@pytest.fixture(scope="module")
def running_threads(tmp_path_factory: pytest.TempPathFactory, observer: Observer) -> Iterator[tuple[int, Following]]:
    """A server with threads that several tests ask, one after another, and what follows it."""
    with (
        server(tmp_path_factory.mktemp("threads"), "threads") as (program, port),
        Following([program.pid], observer=observer) as following,
    ):
        following.wait_followed()
        yield port, following


@pytest.fixture
def threads(running_threads: tuple[int, Following]) -> tuple[int, Following]:
    """The port of that server, and what follows it, without anything of the tests before."""
    port, following = running_threads
    following.take()
    following.spans.clear()
    following.measured.clear()
    return port, following


def test_what_the_gpu_did_stands_on_the_span_and_below_it(threads: tuple[int, Following]) -> None:
    port, following = threads
    load = Load(port, ("copies",))
    load.run(1, clients=1)
    following.wait_spans(1)

    (span,) = following.servers
    attributes = dict(span.attributes)
    assert attributes["http.request.method"] == "POST"
    assert attributes["http.response.status_code"] == 200
    assert attributes["http.request.body.size"] == 5000
    assert attributes["gpu.cuda.memory.copy.bytes.h2d"] == attributes["gpu.cuda.memory.copy.bytes.d2h"] == 1024
    assert attributes["gpu.cuda.memory.copy.calls.h2d"] == attributes["gpu.cuda.memory.copy.calls.d2h"] == 1
    children = [child for child in following.spans if child.kind is SpanKind.INTERNAL]
    assert sorted(child.name for child in children) == ["gpu batch", "gpu copy", "gpu copy", "gpu wait"]
    assert all(child.parent_id == span.context.span_id for child in children)
    assert all(span.start_ns <= child.start_ns <= child.end_ns <= span.end_ns for child in children)


def test_a_request_continues_its_callers_trace_and_heeds_its_sampling(threads: tuple[int, Following]) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    port, following = threads
    load = Load(port, ("plain",))
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        load.ask(connection, {"traceparent": f"00-{trace}-{parent}-00"})
        load.ask(connection, {"traceparent": f"00-{trace}-{parent}-01", "tracestate": "vendor=1"})
    following.wait_spans(1)
    following.take()

    (span,) = following.servers
    assert span.context.trace_id.hex() == trace
    assert span.parent_id.hex() == parent
    assert span.context.trace_state == "vendor=1"
    counted = [m for m in following.measured if m.metric.name == "http.server.request.duration"]
    assert sum(m.value.count for m in counted) == 2  # type: ignore[union-attr]


def test_pipelined_requests_have_no_owner(tmp_path: Path, observer: Observer) -> None:
    with server(tmp_path, "threads") as (program, port), Following([program.pid], observer=observer) as following:
        following.wait_followed()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            for first in range(1, 40, 4):
                asked = [f"GET /work/{first + n}/2/plain HTTP/1.1\r\nHost: x\r\n\r\n" for n in range(4)]
                connection.sendall("".join(asked).encode())
                received = b""
                while received.count(b"done") < 4:
                    part = connection.recv(4096)
                    assert part, "the server has hung up"
                    received += part
        end(program, following)

        assert following.launches() == 80
        assert owned(following) == 0
        assert following.unattributed().keys() <= {"ambiguous", "no_request", "outlived"}
        assert sum(following.unattributed().values()) == 80


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("asgi", ("uvloop", "httptools")), ("threads", ())],
    ids=["uvloop", "threads"],
)
def test_an_agent_that_comes_later_charges_what_begins_then(
    tmp_path: Path, name: str, arguments: tuple[str, ...]
) -> None:
    """Connections are open, and busy, when it comes. A server on asyncio is asked over TLS."""
    hows = ASYNC if name == "asgi" else THREADED
    with (
        server(tmp_path, name, *arguments, "background") as (program, port),
        coming_late([program.pid], Load(port, hows), Load(port, hows), each=40) as late,
    ):
        late.wait_told()
        end(program, late.following)

        late.assert_nothing_wrong()
        assert late.charged_after() == late.after.asked


def test_a_program_is_followed_once_it_begins_gpu_work(tmp_path: Path, observer: Observer) -> None:
    """Before, its messages are nobody's."""
    load = Load(0, ("plain",), bodies=False)

    def ask(path: str = "") -> int:
        number, work, _ = load.next()
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request("GET", path or work)
            assert connection.getresponse().read() == b"done\n"
        return number

    def charged() -> dict[int, int]:
        following.take()
        spans = [s for s in following.servers if str(dict(s.attributes)["url.path"]).startswith("/work/")]
        return {number_of(span): int(dict(span.attributes).get(LAUNCHES, 0)) for span in spans}  # type: ignore[call-overload]

    def is_charged_since(first: int) -> bool:
        ask()
        return any(launches for number, launches in charged().items() if number > first)

    with server(tmp_path, "begins_later") as (program, port), Following([program.pid], observer=observer) as following:
        for _ in range(20):
            ask()
        began = ask("/begin")
        until(lambda: is_charged_since(began), "no request is charged")
        end(program, following)

        found = charged()
        assert all(launches in {0, load.asked[number]} for number, launches in found.items())
        assert min(found) > 20


@contextmanager
def followed_by_another(directory: Path, how: str) -> Iterator[tuple[int, Following, Program]]:
    """Follow a program until a server runs under its number: the process itself, or a new one of that number."""
    if how == "exec":
        with (
            Program([sys.executable, SERVERS / "becomes.py", "threads"], directory) as program,
            Following([program.pid]) as following,
        ):
            program.event("waits")
            following.wait_followed_at_first()
            program.go()
            yield program.pid, following, program
        return
    with server(directory, "threads") as (first, _), Following([first.pid]) as following:
        following.wait_followed_at_first()
        first.process.kill()
        first.wait()
        again = [liar.built() / "chain", str(first.pid), "as", sys.executable, SERVERS / "threads.py"]
        with Program(again, directory) as program:
            try:
                yield first.pid, following, program
            finally:
                with suppress(ProcessLookupError):
                    os.kill(first.pid, signal.SIGKILL)


@pytest.mark.parametrize("how", ["exec", "number"])
def test_a_program_under_the_number_of_one_before_is_followed_on(tmp_path: Path, how: str) -> None:
    """What is kept of the one before is let go of while the next one is followed already."""
    with followed_by_another(tmp_path, how) as (pid, following, program):
        port = int(str(program.event("ready")["port"]))
        before, load = Load(port, ("plain",)), Load(port, THREADED, numbers=itertools.count(LATER))

        def is_charged() -> bool:
            before.run(1, clients=1)
            following.spans += following.requests.spans()
            return bool(owned(following))

        until(is_charged, "the next program is not followed")
        following.wait_forgotten()
        load.run(200)
        following.wait_spans(len(load.asked) + len(following.servers))
        os.kill(pid, signal.SIGTERM)
        program.event("end")
        program.process.wait(DEADLINE_S)
        following.end()

        assert judge([s for s in following.servers if number_of(s) >= LATER], load) == Verdict(
            sum(load.asked.values()), 0, 0
        )


@dataclass(frozen=True)
class Late:
    """What was followed from some moment on: requests of before, and those that began once it was followed."""

    following: Following
    before: Load
    after: Load

    def charged(self) -> Counter[int]:
        found: Counter[int] = Counter()
        for span in self.following.servers:
            found[number_of(span)] += int(dict(span.attributes).get(LAUNCHES, 0))  # type: ignore[call-overload]
        return found

    def charged_after(self) -> dict[int, int]:
        charged = self.charged()
        return {n: charged[n] for n in self.after.asked}

    def wait_told(self) -> None:
        """Wait until all requests of after are told."""

        def are_told() -> bool:
            self.following.take()
            return sum(number_of(s) >= LATER for s in self.following.servers) >= len(self.after.asked)

        until(are_told, "requests were not told")

    def assert_nothing_wrong(self) -> None:
        """Check that no request has more than it asked for, and that all that was launched is somebody's or nobody's."""
        asked = {0: 0, **self.before.asked, **self.after.asked}
        assert {n: c for n, c in self.charged().items() if c > asked[n]} == {}
        unattributed = sum(self.following.unattributed().values())
        assert owned(self.following) + unattributed == self.following.launches()


LATER = 1_000_000
"""Numbers of requests that began once the programs were followed."""


@contextmanager
def coming_late(pids: Sequence[int], before: Load, after: Load, times: int = 1, each: int = 10) -> Iterator[Late]:
    """Follow programs whose clients have connections open, and busy, when that begins; `times` says how often it does.

    Each client asks `each` requests then.
    """
    after.numbers = itertools.count(LATER)
    stop = threading.Event()

    def busy() -> None:
        with closing(before.connect()) as connection:
            while not stop.is_set():
                before.ask(connection)
            for _ in range(each):
                after.ask(connection)

    threads = [threading.Thread(target=busy) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(before.asked) > 50, "the clients are not served")
        for _ in range(times - 1):
            with Following(pids) as following:
                following.wait_followed()
        with Following(pids) as following:
            following.wait_followed()
            stop.set()
            for thread in threads:
                thread.join()
            yield Late(following, before, after)
    finally:
        stop.set()


def test_the_agent_exports_spans_and_what_is_nobodys(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with (
        server(tmp_path, "asgi", "asyncio", "h11", "background") as (program, port),
        Agent(["--traces", "--pid", str(program.pid), "--output", f"file:{out}"], tmp_path) as agent,
    ):
        agent.wait_attached()
        load = Load(port, ASYNC)
        until(_told(load, out), "no span was exported")
        load.asked.clear()
        load.numbers = itertools.count(1_000_000)
        load.run(200)
        # What is launched while the two are read would be in one of them only.
        program.process.send_signal(signal.SIGTERM)
        program.event("end")
        assert agent.wait() == 0, agent.error_text

    spans = read_spans(out)
    assert {n: c for n, c in _charges(spans).items() if n >= 1_000_000} == load.asked
    metrics = read_metrics(out).of(program.pid)
    charged = sum(_charges(spans).values())
    assert metrics.total(LAUNCHES) == charged + metrics.total(UNATTRIBUTED)
    # A bucket of a histogram leads to a request whose value is in it.
    took = {(s.context.trace_id.hex(), s.context.span_id.hex()): (s.end_ns - s.start_ns) / 1e9 for s in spans}
    exemplars = list(_exemplars(out, "http.server.request.duration"))
    assert exemplars
    assert [took[e["traceId"], e["spanId"]] for e in exemplars] == [e["asDouble"] for e in exemplars]


def _exemplars(out: Path, name: str) -> Iterator[dict[str, Any]]:
    for line in (out / "metrics.jsonl").read_text().splitlines():
        for of_resource in json.loads(line)["resourceMetrics"]:
            for metric in of_resource["scopeMetrics"][0]["metrics"]:
                if metric["name"] == name:
                    for point in metric["exponentialHistogram"]["dataPoints"]:
                        yield from point.get("exemplars", ())


def _told(load: Load, out: Path) -> Callable[[], bool]:
    def is_told() -> bool:
        load.run(1, clients=1)
        return any(_charges(read_spans(out)).values())

    return is_told


def _charges(spans: list[Span]) -> Counter[int]:
    found: Counter[int] = Counter()
    for span in spans:
        attributes = dict(span.attributes)
        if "url.path" in attributes and LAUNCHES in attributes:
            found[number_of(span)] += int(attributes[LAUNCHES])
    return found


def _exchange(port: int, *parts: bytes, until_closed: bool = False, half_close: bool = False) -> bytes:
    """Send the parts one after another, and return what comes back, up to an answer's end or the connection's."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            connection.sendall(part)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while until_closed or b"done" not in received:
            if not (part := connection.recv(4096)):
                break
            received += part
        return received


def test_what_clients_do_to_a_connection_charges_nobody_wrongly(tmp_path: Path, observer: Observer) -> None:
    head = b" HTTP/1.1\r\nHost: x\r\n"
    with server(tmp_path, "threads") as (program, port), Following([program.pid], observer=observer) as following:
        following.wait_followed()
        slowly = b"GET /work/1/3/plain" + head + b"\r\n"
        _exchange(port, *(bytes([b]) for b in slowly))
        _exchange(port, b"GET /work/2/4/plain" + head + b"\r\n", half_close=True)
        _exchange(port, b"GET /work/3/5/plain" + head + b"X: " + b"y" * 30_000 + b"\r\n\r\n")
        body = b"POST /work/4/2/plain HTTP/1.1\r\ncontent-LENGTH: 11\r\nHost: x\r\n\r\nGET /work/9"
        _exchange(port, body[:30], body[30:70], body[70:])
        # Two lengths: servers and proxies may disagree on where this request ends.
        _exchange(port, b"POST /work/5/6/plain" + head + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r")
        _exchange(port, b"\x16\x03\x01\x02\x00GET / HTTP/1.1\r\n\r\n", until_closed=True)
        _exchange(port, b"GET nothing\r\n\r\n", until_closed=True)
        following.wait_spans(5)
        end(program, following)

        said = {number_of(span): dict(span.attributes) for span in following.servers if number_of(span)}
        assert {n: a.get(LAUNCHES) for n, a in said.items()} == {1: 3, 2: 4, 3: 5, 4: 2, 5: None}
        assert said[5]["otel_gpu.cut"] == "protocol_lost"
        assert said[4]["http.request.body.size"] == 11
        assert following.unattributed() == {"no_request": 6} or following.unattributed() == {"ambiguous": 6}


def test_a_client_that_goes_away_leaves_a_request_that_is_cut(tmp_path: Path, observer: Observer) -> None:
    with (
        server(tmp_path, "asgi", "asyncio", "h11") as (program, port),
        Following([program.pid], observer=observer) as following,
    ):
        following.wait_followed()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"POST /work/1/3/plain HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
        following.wait_spans(1)

        (span,) = following.servers
        assert dict(span.attributes)["otel_gpu.cut"] == "connection_closed"
        assert dict(span.attributes)["http.request.body.size"] == 4
