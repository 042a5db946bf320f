"""Do the steps of a batched engine link exactly the requests that they served, or more and say so? The engine knows."""

from __future__ import annotations

import http.client
import json
import random
import secrets
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zmq

from otel_gpu.signals.spans import Span, SpanKind
from tests.e2e import ground
from tests.e2e.processes import DEADLINE_S, Agent, Program
from tests.e2e.requests import Following, Observer
from tests.e2e.test_requests import Load, end, number_of, owned, server
from tests.span_reading import read_spans
from tests.waiting import until

WARM_UP = 100
LAUNCHES_OF_STEP = 5
"""For no request."""
_TOTALS = {
    "launches": "gpu.cuda.kernel.launch.calls",
    "h2d": "gpu.cuda.memory.copy.calls.h2d",
    "h2d_bytes": "gpu.cuda.memory.copy.bytes.h2d",
    "d2h": "gpu.cuda.memory.copy.calls.d2h",
    "d2h_bytes": "gpu.cuda.memory.copy.bytes.d2h",
}
_SLACK_NS = 1_000_000
"""The wall clock may be adjusted while it runs."""


@dataclass(frozen=True, slots=True)
class TrueStep:
    """A step, as the engine says it was."""

    ids: frozenset[str]
    began: int
    ended: int
    did: dict[str, int]


class Pair:
    """A server and its engine."""

    def __init__(self, program: Program, directory: Path) -> None:
        self.program = program
        said = program.event("ready")
        self.port, self.engine = int(str(said["port"])), int(str(said["engine"]))
        self._truth = directory / "steps.jsonl"

    def ask(self, tokens: int, *, trace: str = "", **more: object) -> str:
        """Ask for tokens, wait for all of them, and return the request's trace id."""
        trace = trace or secrets.token_hex(16)
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)) as connection:
            body = json.dumps({"tokens": tokens, **more})
            connection.request("POST", "/generate", body, {"traceparent": f"00-{trace}-{secrets.token_hex(8)}-01"})
            with connection.getresponse() as answer:
                assert answer.status == 200
                assert answer.read().count(b"data: token") == tokens
        return trace

    def ask_for_ever(self) -> None:
        """Ask for more than the engine gives before it ends."""
        with suppress(OSError, http.client.HTTPException, AssertionError):
            self.ask(10_000_000)

    def ask_many(self, count: int, rate: float, longest: int) -> None:
        """Ask at random, so many requests a second."""
        chance = random.Random(count)
        threads = []
        for _ in range(count):
            thread = threading.Thread(target=self.ask, args=(chance.randint(1, longest),))
            thread.start()
            threads.append(thread)
            time.sleep(chance.expovariate(rate))
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

    def steps(self) -> list[TrueStep]:
        found = []
        for line in self._truth.read_text().splitlines():
            step = json.loads(line)
            did = {name: step[name] for name in _TOTALS}
            found.append(TrueStep(frozenset(step["ids"]), step["began"], step["ended"], did))
        return found


@contextmanager
def started(directory: Path, *options: str | int) -> Iterator[Pair]:
    command = [sys.executable, ground.PROGRAMS / "batched_server.py", directory, *options, "--warm-up", WARM_UP]
    with Program(command, directory) as program:
        try:
            yield Pair(program, directory)
        finally:
            program.process.stdin.close()
            code = program.wait()
        assert code == 0, program.error_text


@pytest.fixture(params=["threads-ipc", "threads-tcp", "asyncio-ipc", "asyncio-tcp"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    server, transport = request.param.split("-")
    with started(tmp_path, "--server", server, "--transport", transport) as pair:
        yield pair


def traces_of(span: Span) -> frozenset[str]:
    return frozenset(link.context.trace_id.hex() for link in span.links)


def steps_of(spans: Sequence[Span]) -> list[Span]:
    return sorted((span for span in spans if span.name == "gpu step"), key=lambda span: span.start_ns)


def did(span: Span) -> dict[str, int]:
    attributes = dict(span.attributes)
    return {short: int(attributes.get(name, 0)) for short, name in _TOTALS.items()}  # type: ignore[call-overload]


def assert_every_step_is_right(following: Following, pair: Pair) -> None:
    truth = pair.steps()
    spans = steps_of(following.spans)
    seen = Counter[str]()
    for span, true in zip(spans, truth, strict=True):
        assert true.began - _SLACK_NS <= span.start_ns <= span.end_ns <= true.ended + _SLACK_NS
        assert did(span) == true.did
        linked = str(dict(span.attributes)["otel_gpu.linked"])
        left_out = dict(span.attributes).get("otel_gpu.links.left_out", 0)
        assert left_out or traces_of(span) >= true.ids
        assert linked == "superset" or (linked == "exact" and traces_of(span) == true.ids)
        seen[linked] += 1
        seen["links"] += len(span.links)
        seen["served"] += len(true.ids)
        seen["links are the batch"] += traces_of(span) == true.ids
    print(f"{len(spans)} steps, {dict(seen)}")

    # What requests got adds up to what steps did, in every number.
    shares: Counter[str] = Counter()
    for span in following.servers:
        assert dict(span.attributes)["otel_gpu.attribution"] == "share"
        shares.update(did(span))
    whole: Counter[str] = Counter()
    for true in truth:
        whole.update(true.did)
    assert shares == whole

    # And with what is nobody's, to what was counted.
    assert_all_is_counted(following)
    assert following.ambiguous == 0


def test_every_step_links_what_it_served(pair: Pair, observer: Observer) -> None:
    with Following([pair.program.pid, pair.engine], observer=observer) as following:
        following.wait_followed()
        pair.ask(1)  # the engine is known as one from its first message on
        pair.ask_many(120, rate=100, longest=12)
        following.wait_spans(121)
        following.end()

        assert_every_step_is_right(following, pair)


def test_an_engine_with_more_to_do_than_it_can_links_more_than_it_serves(tmp_path: Path, observer: Observer) -> None:
    with (
        started(tmp_path, "--server", "threads", "--batch", 4) as pair,
        Following([pair.program.pid, pair.engine], observer=observer) as following,
    ):
        following.wait_followed()
        pair.ask(1)
        pair.ask_many(200, rate=2000, longest=8)
        following.wait_spans(201)
        following.end()

        assert_every_step_is_right(following, pair)


def test_what_no_request_is_in_flight_for_is_nobodys(tmp_path: Path, observer: Observer) -> None:
    options = "--server", "threads", "--idle-ms", 100
    with (
        started(tmp_path, *options) as pair,
        Following([pair.program.pid, pair.engine], observer=observer) as following,
    ):
        following.wait_followed()
        pair.ask(3)
        following.wait_spans(1)
        idle = len(pair.steps())
        until(lambda: len(pair.steps()) >= idle + 5, "the engine does nothing")
        following.end()

        spans = steps_of(following.spans)
        assert len(spans) >= 3
        assert all(traces_of(span) for span in spans)
        assert_nothing_is_wrong(spans, [step for step in pair.steps() if step.ids])
        assert following.unattributed()["no_request"] >= 5 * LAUNCHES_OF_STEP
        assert_all_is_counted(following)


def assert_nothing_is_wrong(spans: Sequence[Span], truth: Sequence[TrueStep]) -> Counter[str]:
    """Compare steps that have spans with those that were: by time, as a step that is linked to nothing has none."""
    found: Counter[str] = Counter()
    for span in spans:
        (true,) = (t for t in truth if t.began - _SLACK_NS <= span.start_ns and span.end_ns <= t.ended + _SLACK_NS)
        linked = str(dict(span.attributes)["otel_gpu.linked"])
        found[linked] += 1
        if linked == "exact":
            assert traces_of(span) == true.ids
        elif linked == "superset":
            assert traces_of(span) >= true.ids
    return found


def assert_all_is_counted(following: Following) -> None:
    owned = sum(did(server)["launches"] for server in following.servers)
    assert following.launches() == owned + sum(following.unattributed().values())


def test_an_engine_that_goes_on_when_the_client_is_gone_works_for_its_request(
    tmp_path: Path, observer: Observer
) -> None:
    with (
        started(tmp_path, "--server", "threads") as pair,
        Following([pair.program.pid, pair.engine], observer=observer) as following,
    ):
        following.wait_followed()
        pair.ask(1)
        connection = http.client.HTTPConnection("127.0.0.1", pair.port, timeout=DEADLINE_S)
        gone = secrets.token_hex(16)
        head = {"traceparent": f"00-{gone}-{secrets.token_hex(8)}-01"}
        connection.request("POST", "/generate", json.dumps({"tokens": 60}), head)
        connection.getresponse().read(1)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        pair.ask(40)
        following.wait_spans(3)
        following.end()

        found = assert_nothing_is_wrong(steps_of(following.spans), pair.steps())
        assert found["superset"] > 0
        (cut,) = (span for span in following.servers if span.context.trace_id.hex() == gone)
        assert dict(cut.attributes)["otel_gpu.cut"] == "connection_closed"
        assert_all_is_counted(following)


def test_messages_that_are_alike_join_nothing(tmp_path: Path, observer: Observer) -> None:
    """Of messages that differ behind the bytes that are looked at, nobody can tell whose is whose."""
    with (
        started(tmp_path, "--server", "threads") as pair,
        Following([pair.program.pid, pair.engine], observer=observer) as following,
    ):
        following.wait_followed()
        pair.ask(1)
        alike = {"prompt": "x" * 200, "is_late": True}
        rounds = 0
        # On a busy host all of a round may be answered one after another, and none of them is alike then.
        while not following.ambiguous:
            threads = [threading.Thread(target=pair.ask, args=(8,), kwargs=alike) for _ in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(DEADLINE_S)
            rounds += 1
            assert rounds < 20
        last = pair.ask(2)
        following.wait_spans(2 + 16 * rounds)
        following.end()

        spans = steps_of(following.spans)
        found = assert_nothing_is_wrong(spans, pair.steps())
        print(found, following.unattributed())
        assert_all_is_counted(following)
        assert following.ambiguous > 0
        assert following.unattributed()["ambiguous"] > 0
        # What comes after is told apart again.
        assert [traces_of(span) for span in spans[-2:]] == [{last}] * 2


def test_a_stranger_that_sends_the_same_joins_nothing(tmp_path: Path, observer: Observer) -> None:
    with (
        started(tmp_path, "--server", "threads") as pair,
        Following([pair.program.pid, pair.engine], observer=observer) as following,
    ):
        following.wait_followed()
        pair.ask(1)
        trace = secrets.token_hex(16)
        message = json.dumps({"id": trace, "tokens": 20, "prompt": ""})
        with Program([sys.executable, ground.PROGRAMS / "message_flood.py", message, "100000"], tmp_path) as flood:
            flood.ready()
            flood.go()
            pair.ask(20, trace=trace)
            said = flood.event("flooded")
            assert said["received"] == 100_000
            flood.wait()
        others = [pair.ask(3) for _ in range(3)]
        following.wait_spans(5)
        following.end()

        spans = steps_of(following.spans)
        found = assert_nothing_is_wrong(spans, pair.steps())
        print(found, following.unattributed())
        assert_all_is_counted(following)
        assert {trace for span in spans[-9:] for trace in traces_of(span)} == set(others)


class Stranger:
    """A client of an engine's own, who works for no request. A context manager: it asks all the time."""

    TOKENS = 3

    def __init__(self, address: str) -> None:
        self._address = address
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.asked: list[str] = []

    def _ask(self) -> None:
        with zmq.Context() as context, context.socket(zmq.PUSH) as messages:
            messages.connect(self._address)
            while not self._is_over.wait(0.01):
                self.asked.append(f"stranger {len(self.asked)}")
                messages.send(json.dumps({"id": self.asked[-1], "tokens": self.TOKENS}).encode())

    def served(self, pair: Pair) -> int:
        """Return how many tokens it got."""
        return sum(name.startswith("stranger") for step in pair.steps() for name in step.ids)

    def __enter__(self) -> Stranger:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def test_what_a_stranger_asks_for_over_zeromq_is_no_requests(tmp_path: Path, observer: Observer) -> None:
    """It is served in steps together with requests, which get none of it."""
    place = f"ipc://{tmp_path}/more"
    with (
        started(tmp_path, "--server", "threads", "--more-input", place) as pair,
        Following([pair.program.pid, pair.engine], observer=observer) as following,
    ):
        following.wait_followed()
        pair.ask(3)
        with Stranger(place) as stranger:
            until(lambda: stranger.served(pair), "the stranger is not served")
            pair.ask_many(80, rate=60, longest=8)
        until(lambda: stranger.served(pair) == len(stranger.asked) * stranger.TOKENS, "the stranger is not served")
        following.wait_spans(81)
        until(lambda: not following.requests.engines.leave_strangers(), "the engine works for the stranger for ever")
        last = pair.ask(5)
        following.wait_spans(82)
        following.end()

        truth, spans = pair.steps(), steps_of(following.spans)
        found = assert_nothing_is_wrong(spans, truth)
        assert found["partial"] > 0
        strange = sum(s.did["launches"] for s in truth if any(name.startswith("stranger") for name in s.ids))
        nobodys = following.unattributed()
        # Of a first message that is seen to arrive nothing is without a request.
        assert nobodys["ambiguous"] + nobodys.get("no_request", 0) >= strange
        assert_all_is_counted(following)
        # When it has gone, requests get again what is done for them.
        of_last = [s for s in spans if last in traces_of(s)]
        assert [dict(s.attributes)["otel_gpu.linked"] for s in of_last] == ["superset"] + ["exact"] * 4 or [
            dict(s.attributes)["otel_gpu.linked"] for s in of_last
        ] == ["exact"] * 5
        (span,) = (s for s in following.servers if s.context.trace_id.hex() == last)
        assert did(span)["launches"] == sum(did(s)["launches"] for s in of_last)


def test_an_agent_that_comes_to_a_busy_engine_charges_no_wrong_request(tmp_path: Path) -> None:
    """Requests that it got before are served together with newer ones: whose a step is, is not known."""
    with started(tmp_path, "--server", "threads") as pair:
        for _ in range(3):
            threading.Thread(target=pair.ask_for_ever, daemon=True).start()
        until(lambda: any(len(step.ids) == 3 for step in pair.steps()), "the engine does nothing")
        with Following([pair.program.pid, pair.engine]) as following:
            following.wait_followed()
            pair.ask_many(20, rate=60, longest=8)
            following.wait_spans(20)
            pair.program.process.stdin.close()
            pair.program.wait()
            following.end()

            found = assert_nothing_is_wrong(steps_of(following.spans), pair.steps())
            assert found.keys() == {"partial"}
            assert all(did(server)["launches"] == 0 for server in following.servers)
            assert_all_is_counted(following)


def test_an_agent_that_comes_to_an_engine_knows_all_its_requests_once_it_was_quiet(tmp_path: Path) -> None:
    with started(tmp_path, "--server", "threads") as pair:
        before = threading.Thread(target=pair.ask, args=(1500,))
        before.start()
        until(lambda: len(pair.steps()) > 5, "the engine does nothing")
        with Following([pair.program.pid, pair.engine]) as following:
            following.wait_followed()
            pair.ask(3)
            before.join(DEADLINE_S)
            until(lambda: not following.requests.engines.leave_strangers(), "the engine works for others for ever")
            last = pair.ask(5)
            following.wait_spans(2)
            following.end()

            spans = steps_of(following.spans)
            assert_nothing_is_wrong(spans, pair.steps())
            of_last = [span for span in spans if last in traces_of(span)]
            assert len(of_last) == 5
            assert "partial" not in {dict(span.attributes)["otel_gpu.linked"] for span in of_last}
            assert_all_is_counted(following)


def test_a_server_is_found_by_its_messages(tmp_path: Path) -> None:
    """It makes no call of the driver, and has not even mapped it."""
    with (
        started(tmp_path, "--server", "asyncio") as pair,
        Following([pair.engine], feeding=[pair.program.pid]) as following,
    ):
        is_followed = following.requests.followed.is_followed
        until(lambda: is_followed(pair.engine) and following.requests.engines.probes()[0] > 0, "no engine is followed")
        assert not is_followed(pair.program.pid)
        pair.ask(1)
        following.wait_followed()
        asked = [pair.ask(2) for _ in range(3)]
        following.wait_spans(3)
        following.end()

        assert [traces_of(span) for span in steps_of(following.spans)] == [{trace} for trace in asked for _ in range(2)]
        assert {span.context.trace_id.hex() for span in following.servers} == set(asked)
        assert_all_is_counted(following)


def test_steps_of_an_engine_that_reads_its_requests_itself_link_them(tmp_path: Path, observer: Observer) -> None:
    """One thread reads the requests of all connections and works for them in steps, without another process."""
    said = tmp_path / "steps.jsonl"
    with (
        server(tmp_path, "batching", str(said)) as (program, port),
        Following([program.pid], observer=observer) as following,
    ):
        following.wait_followed()
        load = Load(port, ("plain",))
        load.run(20, clients=1)
        load.run(400)
        following.wait_spans(len(load.asked))
        launched = end(program, following)

        assert following.launches() == owned(following) + sum(following.unattributed().values()) == launched
        numbers = {(s.context.trace_id, s.context.span_id): number_of(s) for s in following.servers}
        charged = {number_of(span): did(span)["launches"] for span in following.servers}
        # What came alone, at first, is charged whole.
        assert {n: c for n, c in charged.items() if n <= 20} == {n: c for n, c in load.asked.items() if n <= 20}
        alone = {n: charged[n] for n in charged if attribution_of(following, n) != "share"}
        assert {n: c for n, c in alone.items() if c > load.asked[n]} == {}
        truth = [json.loads(line) for line in said.read_text().splitlines()]
        steps = steps_of(following.spans)
        # Once the thread has several at once, each step links all that it served.
        for span in steps:
            served = {n for true in truth if is_within(true, span) for n in true["ids"]}
            linked = {numbers[link.context.trace_id, link.context.span_id] for link in span.links}
            assert served, "a step that was none"
            assert linked >= served, (linked, served)
            assert sum(true["launches"] for true in truth if is_within(true, span)) == did(span)["launches"]
        batches = sum(len(true["ids"]) > 1 for true in truth)
        assert batches
        assert sum(len(span.links) > 1 for span in steps) >= 0.9 * batches
        assert following.unattributed() == {}


def is_within(true: dict[str, Any], span: Span) -> bool:
    """Tell whether a step was, by the engine's own word, in a span."""
    return bool(span.start_ns <= true["ended"] and true["began"] <= span.end_ns)


def attribution_of(following: Following, number: int) -> object:
    (span,) = (span for span in following.servers if number_of(span) == number)
    return dict(span.attributes).get("otel_gpu.attribution")


def test_an_agent_writes_steps_and_requests(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with started(tmp_path, "--server", "asyncio") as pair:
        arguments = ["--traces", "--pid", pair.program.pid, "--pid", pair.engine, "--output", f"file:{out}"]
        with Agent([str(a) for a in arguments], tmp_path) as agent:
            agent.wait_attached()
            # Some requests go by before the server is followed, and it is not known at once that the engine has none of those.
            until(lambda: is_known(pair, out), "no step is whole")
            pair.ask_many(20, rate=50, longest=5)
            agent.stop()

        steps = written(out)
        requests = {(s.context.trace_id, s.context.span_id) for s in written(out, SpanKind.SERVER)}
        for step in steps:
            assert {(link.context.trace_id, link.context.span_id) for link in step.links} <= requests
        shares = sum(launches_of(s) for s in written(out, SpanKind.SERVER))
        # While some that went by before may be worked for, steps are nobody's.
        whole = [step for step in steps if dict(step.attributes)["otel_gpu.linked"] != "partial"]
        assert shares == sum(map(launches_of, whole)) > 20 * LAUNCHES_OF_STEP


def is_known(pair: Pair, out: Path) -> bool:
    """Ask when the engine was quiet for so long that it is known to have nothing else to do; tell whether a step says so."""
    time.sleep(1.5)
    pair.ask(2)
    return any(dict(step.attributes)["otel_gpu.linked"] != "partial" for step in written(out))


def written(out: Path, kind: SpanKind = SpanKind.INTERNAL) -> list[Span]:
    """Return the spans of a kind that an agent wrote; of those within, the steps."""
    found = [span for span in read_spans(out) if span.kind is kind]
    return [span for span in found if kind is SpanKind.SERVER or span.name == "gpu step"]


def launches_of(span: Span) -> int:
    return int(dict(span.attributes).get(_TOTALS["launches"], 0))
