"""Do the GPU's spans hang below the spans that programs make themselves? Each answer says in which spans its launches were."""

from __future__ import annotations

import ctypes
import http.client
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from otel_gpu.bpf import libbpf
from otel_gpu.bpf.maps import BpfMap
from otel_gpu.bpf.pinned import Pinned, UnexpectedMapError
from otel_gpu.signals.spans import Span, SpanKind
from tests.e2e.processes import Program
from tests.e2e.requests import LAUNCHES, Following, Observer
from tests.e2e.test_requests import BY_NEW_THREADS, SERVERS, Load, compiled, end
from tests.waiting import until

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CALLERS_TRACE, CALLERS_SPAN = CALLER.split("-")[1:3]
CLIENTS, ROUNDS = 4, 12
LRU_HASH = 9
WAYS = ("plain", "inner", "two", "thread")
ASYNC_WAYS = (*WAYS, "task", "gather", "variables")


def talking(port: int) -> closing[http.client.HTTPConnection]:
    return closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60))


class Asked:
    """What was asked, and what the program said of it: by number the launches, and the spans that they were in."""

    def __init__(self) -> None:
        self.launches: dict[int, int] = {}
        self.spans: dict[int, list[str]] = {}
        self.hows: dict[int, str] = {}

    def ask(self, connection: http.client.HTTPConnection, number: int, how: str, traceparent: str = "") -> None:
        times = number % 4 + 1
        connection.request(
            "GET", f"/work/{number}/{times}/{how}", headers={"traceparent": traceparent} if traceparent else {}
        )
        self.spans[number] = connection.getresponse().read().decode().split()
        self.launches[number] = times * (2 if how == "two" else 1)
        self.hows[number] = how

    def ask_all(self, port: int, ways: Sequence[str], first: int = 1, traceparent: str = "") -> None:
        """Ask in every way, several at once."""

        def client(offset: int) -> None:
            with talking(port) as connection:
                for n in range(ROUNDS):
                    number = first + offset * ROUNDS + n
                    self.ask(connection, number, ways[number % len(ways)], traceparent)

        threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # An event loop frees a request's task once it has answered it, before it reads the next one.
        with talking(port) as connection:
            self.ask(connection, first + CLIENTS * ROUNDS, "plain", traceparent)


def serving(directory: Path, *arguments: str, python: Sequence[str] = (sys.executable,)) -> Program:
    return Program([*python, SERVERS / "traced.py", *arguments], directory)


def wait_told(following: Following, program: Program) -> None:
    """Wait until the program is followed, and it is known where it has its spans."""
    following.wait_followed()

    def is_known() -> bool:
        places = following.requests.own_spans.knows(program.pid)
        return places is not None and (places.span is not None and places.span.has_sdk)

    until(is_known, "the program's own spans are not found")


def batches(spans: Sequence[Span]) -> dict[str, int]:
    """Return the launches of pieces of work, by the span whose children they are."""
    found: dict[str, int] = {}
    for span in spans:
        if span.name == "gpu batch":
            parent = f"{span.context.trace_id.hex()}/{span.parent_id.hex()}"
            found[parent] = found.get(parent, 0) + int(dict(span.attributes)[LAUNCHES])  # type: ignore[call-overload]
    return found


def expected(asked: Asked) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, spans in asked.spans.items():
        for span in spans:
            found[span] = found.get(span, 0) + asked.launches[number] // len(spans)
    return found


@pytest.mark.parametrize(("server", "ways"), [("threads", WAYS), ("asyncio", ASYNC_WAYS)])
@pytest.mark.parametrize("traceparent", ["", CALLER], ids=["alone", "called"])
def test_work_is_below_the_programs_own_spans(
    tmp_path: Path, observer: Observer, server: str, ways: Sequence[str], traceparent: str
) -> None:
    with serving(tmp_path, server) as program, Following([program.pid], observer=observer) as following:
        port = int(str(program.event("ready")["port"]))
        wait_told(following, program)
        asked = Asked()
        asked.ask_all(port, ways, traceparent=traceparent)
        launched = end(program, following)

        below, whole = batches(following.spans), expected(asked)
        missing = {span for span in whole if below.get(span) != whole[span]}
        # All of it, or none where a new thread had to wait as it began.
        assert missing < {s for n, spans in asked.spans.items() if asked.hows[n] in BY_NEW_THREADS for s in spans}
        assert below.keys() == whole.keys() - missing
        # In its place stands what carries the totals, and nothing is twice.
        assert len(following.servers) == len(missing)
        totals = [
            int(dict(span.attributes)[LAUNCHES])  # type: ignore[call-overload]
            for span in following.spans
            if span.name == "gpu request"
        ]
        assert len(totals) == len(asked.spans) - len(missing)
        assert sum(totals) == sum(below.values()) == launched - sum(following.unattributed().values())
        assert launched == sum(asked.launches.values())
        if traceparent:
            assert {span.context.trace_id.hex() for span in following.spans} == {CALLERS_TRACE}


@pytest.mark.parametrize("server", ["threads", "asyncio"])
def test_a_request_without_a_span_of_its_own_has_ours(tmp_path: Path, observer: Observer, server: str) -> None:
    with serving(tmp_path, server, "inside") as program, Following([program.pid], observer=observer) as following:
        port = int(str(program.event("ready")["port"]))
        wait_told(following, program)
        asked = Asked()
        with talking(port) as connection:
            for number, how in enumerate(["untraced", "caller", "plain"] * 3, 1):
                asked.ask(connection, number, how, CALLER)
        end(program, following)

        ours = {str(dict(s.attributes)["url.path"]).rpartition("/")[2] for s in following.servers}
        assert ours == {"untraced", "caller"}
        assert len(following.servers) == 6
        for span in following.servers:
            assert (span.context.trace_id.hex(), span.parent_id.hex()) == (CALLERS_TRACE, CALLERS_SPAN)
            children = [c for c in following.spans if c.parent_id == span.context.span_id]
            assert {c.name for c in children} == {"gpu batch", "gpu wait"}
        own = [spans[0] for number, spans in asked.spans.items() if asked.hows[number] == "plain"]
        assert {name: n for name, n in batches(following.spans).items() if name in own}.keys() == set(own)


def test_a_span_that_is_no_requests_gets_the_work_and_the_request_keeps_its_own(
    tmp_path: Path, observer: Observer
) -> None:
    """One that the handler made by hand, in a trace of its own: the request's span is in the same trace."""
    with serving(tmp_path, "threads") as program, Following([program.pid], observer=observer) as following:
        port = int(str(program.event("ready")["port"]))
        wait_told(following, program)
        asked = Asked()
        with talking(port) as connection:
            asked.ask(connection, 1, "manual")
        end(program, following)

        (server,) = following.servers
        assert batches(following.spans) == expected(asked)
        assert server.context.trace_id.hex() == asked.spans[1][0].partition("/")[0]
        assert server.kind is SpanKind.SERVER
        assert dict(server.attributes)[LAUNCHES] == asked.launches[1]


def test_a_program_that_publishes_who_it_is_is_that_in_its_spans_and_metrics(
    tmp_path: Path, observer: Observer
) -> None:
    with serving(tmp_path, "threads", "publishes") as program, Following([program.pid], observer=observer) as following:
        port = int(str(program.event("ready")["port"]))
        wait_told(following, program)
        until(lambda: following.has_published(program.pid), "what it publishes is not read")
        asked = Asked()
        with talking(port) as connection:
            asked.ask(connection, 1, "plain", CALLER)
        end(program, following)

        assert batches(following.spans) == expected(asked)
        resources = {one.resource for one in (*following.spans, *following.measured)}
        (resource,) = (r for r in resources if dict(r.attributes).get("process.pid") == program.pid)
        known = dict(resource.attributes)
        assert (known["service.instance.id"], known["service.name"]) == ("number 7", "traced")


@pytest.mark.parametrize(
    ("flags", "is_linked"),
    [(["-mtls-dialect=gnu2"], False), ([], False), (["-ftls-model=initial-exec"], False), (["-rdynamic"], True)],
    ids=["descriptor", "general-dynamic", "initial-exec", "executable"],
)
def test_what_a_program_publishes_is_read_however_its_threads_reach_it(
    tmp_path: Path, observer: Observer, flags: list[str], is_linked: bool
) -> None:
    """OTEP 4947, for any language. A record that is not valid is none."""
    executable, library = tmp_path / "threads", tmp_path / "libpublished.so"
    source, published = SERVERS / "threads.c", SERVERS / "published.c"
    own = [str(published), *flags] if is_linked else []
    subprocess.run(["gcc", "-O2", "-o", executable, source, *own, "-lpthread", "-ldl"], check=True)
    if not is_linked:
        command = ["gcc", "-O2", "-shared", "-fPIC", *flags, "-o", library, published, "-ldl"]
        subprocess.run(command, check=True)
    environment = {} if is_linked else {"LD_PRELOAD": str(library)}
    with (
        Program([executable, "blocking"], tmp_path, environment) as program,
        Following([program.pid], observer=observer) as following,
    ):
        port = int(str(program.event("ready")["port"]))
        following.wait_followed()
        until(lambda: _publishes(following, program), "it is not found where the program publishes")
        load = Load(port, ("plain",), bodies=False)
        load.run(80)
        launched = end(program, following)

        trace = "ab" * 16
        told = {number: n for number, n in load.asked.items() if number % 10}
        # The server says nothing of when it has seen its work done: a request is one piece at most, or none.
        requests = [span for span in following.spans if span.name == "gpu request"]
        found = {int.from_bytes(s.parent_id, "big"): dict(s.attributes)[LAUNCHES] for s in requests}
        assert found == told
        assert {span.context.trace_id.hex() for span in requests} == {trace}
        ours = {int(str(dict(s.attributes)["url.path"]).split("/")[2]) for s in following.servers}
        assert ours == load.asked.keys() - told.keys()
        assert following.launches() == launched


def _publishes(following: Following, program: Program) -> bool:
    places = following.requests.own_spans.knows(program.pid)
    return places is not None and places.published is not None


@contextmanager
def pinned_map(directory: Path, value_size: int) -> Iterator[tuple[str, BpfMap]]:
    """Pin a map as OBI does, with values of that size, in a file system of its own."""
    place = directory / "bpf"
    place.mkdir()
    subprocess.run(["mount", "-t", "bpf", "bpf", place], check=True)
    fd = libbpf.bpf(0, _Made(LRU_HASH, 8, value_size, 1024))
    try:
        path = str(place / "traces_ctx_v1")
        name = ctypes.create_string_buffer(path.encode())
        libbpf.bpf(6, _Pin(ctypes.addressof(name), fd))
        yield path, BpfMap("traces_ctx_v1", fd, LRU_HASH, 8, value_size, 1024)
    finally:
        os.close(fd)
        subprocess.run(["umount", place], check=True)


class _Made(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("kind", "key", "value", "entries"))


class _Pin(ctypes.Structure):
    _fields_ = (("pathname", ctypes.c_uint64), ("fd", ctypes.c_uint32))


def test_what_obi_says_of_a_thread_is_read(tmp_path: Path) -> None:
    trace, span_id = bytes(range(1, 17)), bytes(range(1, 9))
    with pinned_map(tmp_path, 24) as (path, table), compiled(tmp_path, "blocking") as (program, port):  # noqa: SIM117
        with Following([program.pid]) as following, talking(port) as connection:
            own_spans = following.requests.own_spans
            own_spans.read_obi(path)
            following.wait_followed()
            load = Load(port, ("plain",), bodies=False)
            load.ask(connection)
            # Each connection has a thread.
            for tid in os.listdir(f"/proc/{program.pid}/task"):
                table.put((program.pid << 32 | int(tid)).to_bytes(8, "little"), trace + span_id)
            load.ask(connection)
            end(program, following)

            (ours,) = following.servers
            assert str(dict(ours.attributes)["url.path"]).startswith("/work/1/")
            (theirs,) = (span for span in following.spans if span.name == "gpu request")
            assert (theirs.context.trace_id, theirs.parent_id) == (trace, span_id)
            assert dict(theirs.attributes)[LAUNCHES] == load.asked[2]


def test_a_map_that_is_not_as_obis_is_refused(tmp_path: Path) -> None:
    with pinned_map(tmp_path, 16) as (path, _), pytest.raises(UnexpectedMapError, match="values of 16 bytes"):
        Pinned(path, LRU_HASH, 8, 24)
