"""Does what one process does for another's request go to that request, where it came over a plain channel?"""

from __future__ import annotations

import itertools
import json
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from otel_gpu.signals.metrics import Measurement
from otel_gpu.signals.spans import Span, SpanKind
from tests.e2e import ground
from tests.e2e.processes import Program
from tests.e2e.requests import LAUNCHES, Following, launches_of, of_processes, unattributed_of
from tests.e2e.test_requests import Load, Verdict, coming_late, judge, number_of

MESSAGE_BYTES = 64
_EACH = 1000
"""More requests than any pair is asked."""
STRANGERS_NUMBER = 100_000
"""No request has it."""
LEAST_KNOWN = 0.5
"""Of launches, on however busy a host. The kernel says that something was sent after it was handed over and whoever waits for it
was woken: that one may have read it, and launched all that it asks for, while the sender waits for a CPU. What is launched
before the kernel has said so is nobody's, and what follows is the request's. On an idle host that is one in a thousand."""


@dataclass(frozen=True)
class Way:
    """How a server asks its engine, how that reads, and how many strangers ask it at the same time."""

    channel: str
    engine: str
    strangers: int = 0

    def __str__(self) -> str:
        return "-".join(map(str, (self.channel, self.engine, *([self.strangers] if self.strangers else []))))


class Pair:
    """A server and its engine."""

    def __init__(self, program: Program) -> None:
        self.program = program
        said = program.event("ready")
        self.port, self.engine = int(str(said["port"])), int(str(said["engine"]))
        self.place = str(said["place"])
        """Where the engine is asked."""

    @property
    def pids(self) -> list[int]:
        return [self.program.pid, self.engine]

    def end(self) -> int:
        """End both, and return how many launches the engine made."""
        assert self.program.process.stdin is not None
        self.program.process.stdin.close()
        launched = int(str(self.program.event("end")["launches"]))
        assert self.program.wait() == 0, self.program.error_text
        return launched


@contextmanager
def pair(directory: Path, channel: str, engine: str) -> Iterator[Pair]:
    with Program(
        [sys.executable, ground.PROGRAMS / "channel_server.py", channel, engine, directory], directory
    ) as program:
        yield Pair(program)


@dataclass(frozen=True)
class Outcome:
    """What a pair was asked and did, and what was exported of it."""

    load: Load
    launched: int
    by_strangers: int
    spans: Sequence[Span]
    measured: Sequence[Measurement]

    @property
    def servers(self) -> list[Span]:
        """The spans of requests."""
        return [span for span in self.spans if span.kind is SpanKind.SERVER]

    @property
    def steps(self) -> list[Span]:
        """What was done for several requests together."""
        return [span for span in self.spans if span.name == "gpu step"]

    @property
    def unattributed(self) -> dict[str, int]:
        """Launches without an owner, by reason."""
        return unattributed_of(self.measured)

    def verdict(self) -> Verdict:
        """Compare what requests were charged with what they did; every launch is somebody's or nobody's."""
        owned = sum(int(dict(span.attributes).get(LAUNCHES, 0)) for span in self.servers)  # type: ignore[call-overload]
        assert owned + sum(self.unattributed.values()) == launches_of(self.measured) == self.launched
        return judge(self.servers, self.load)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mapping[Way, Outcome]:
    """Ask the pairs of all tests that run, one after another: to begin to follow takes time, and is done once."""
    params = (getattr(item, "callspec", None) for item in request.session.items if item.path == request.path)
    ways = [one.params["way"] for one in params if one is not None and "way" in one.params]
    pairs: dict[Way, Pair] = {}
    loads: dict[Way, Load] = {}
    strangers: dict[Way, int] = {}
    with ExitStack() as stack:
        for way in ways:
            directory = tmp_path_factory.mktemp(str(way))
            pairs[way] = stack.enter_context(pair(directory, way.channel, way.engine))
        following = stack.enter_context(Following([pid for both in pairs.values() for pid in both.pids]))
        following.wait_followed()
        for n, (way, both) in enumerate(pairs.items()):
            load = loads[way] = Load(both.port, ("plain",), numbers=itertools.count(n * _EACH + 1))
            with Strangers(both.place, way.strangers) as asking:
                load.run(400 if way.strangers else 200)
            strangers[way] = asking.launches
            if way.strangers:
                load.run(200)
            following.wait_spans(sum(len(one.asked) for one in loads.values()))
        launched = {way: both.end() for way, both in pairs.items()}
        following.end()
        return {
            way: Outcome(
                loads[way],
                launched[way],
                strangers[way],
                of_processes(both.pids, following.spans),
                of_processes(both.pids, following.measured),
            )
            for way, both in pairs.items()
        }


@pytest.mark.parametrize(
    "way",
    [
        Way("tcp", "threads"),
        Way("unix", "threads"),
        Way("seqpacket", "threads"),
        Way("pair", "pairs"),
        Way("dgram", "pairs"),
        Way("pipe", "pipes"),
        Way("simplex", "simplex"),
        Way("fifo", "fifos"),
        Way("stdio", "stdio"),
        Way("fresh", "threads"),
        Way("tcp", "asyncio"),
        Way("unix", "asyncio"),
    ],
    ids=str,
)
def test_what_a_message_asks_for_is_its_requests(way: Way, outcomes: Mapping[Way, Outcome]) -> None:
    outcome = outcomes[way]
    verdict, asked = outcome.verdict(), sum(outcome.load.asked.values())
    assert verdict.wrong == 0
    assert verdict.right >= LEAST_KNOWN * asked, verdict
    # The rest is nobody's, and so is what follows the answers.
    assert sum(outcome.unattributed.values()) == outcome.launched - asked + verdict.missing
    # What an event loop has read before the kernel said who sent it is nobody's by that reason (LEAST_KNOWN).
    unseen = {"ambiguous"} if way.engine == "asyncio" else set()
    assert outcome.unattributed.keys() <= {"idle", "no_request", "outlived"} | unseen


@pytest.mark.parametrize(
    ("way", "is_followed"),
    [
        (Way("queue", "none"), False),
        (Way("locked", "none"), True),
        (Way("pool", "none"), True),
        (Way("executor", "none"), False),
    ],
    ids=str,
)
def test_what_multiprocessing_hands_on_is_charged_to_nobody_wrongly(
    way: Way, is_followed: bool, outcomes: Mapping[Way, Outcome]
) -> None:
    """A queue's thread was begun by the first request that put something in, and sends for all; those of pools are alike."""
    verdict = outcomes[way].verdict()
    assert verdict.wrong == 0
    assert (verdict.right > 0) == is_followed


@pytest.mark.parametrize("way", [Way("tcp", "batch")], ids=str)
def test_a_batch_is_linked_to_all_that_it_may_be_for(way: Way, outcomes: Mapping[Way, Outcome]) -> None:
    """One thread reads what is there of all connections, and works for all of it then."""
    outcome = outcomes[way]
    outcome.verdict()
    # What was for one alone is right; of the rest each has a part, and what it got a part of was for others as well.
    alone = [s for s in outcome.servers if dict(s.attributes).get("otel_gpu.attribution") != "share"]
    for span in alone:
        assert int(dict(span.attributes).get(LAUNCHES, 0)) <= outcome.load.asked[number_of(span)]  # type: ignore[call-overload]
    assert any(len(step.links) > 1 for step in outcome.steps)
    assert {dict(step.attributes)["otel_gpu.linked"] for step in outcome.steps} <= {"superset", "exact"}


class Strangers:
    """Clients of an engine's own, who work for no request that is followed. A context manager."""

    def __init__(self, place: str, clients: int) -> None:
        self._place = place
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]
        self.launches = 0

    def _ask(self) -> None:
        with self._connected() as channel:
            while not self._is_over.wait(0.002):
                self.launches += 3
                channel.sendall(json.dumps({"id": STRANGERS_NUMBER, "times": 3}).encode().ljust(MESSAGE_BYTES))
                assert channel.recv(MESSAGE_BYTES, socket.MSG_WAITALL)

    def _connected(self) -> socket.socket:
        if self._place.isdigit():
            return socket.create_connection(("127.0.0.1", int(self._place)))
        channel = socket.socket(socket.AF_UNIX)
        channel.connect(self._place)
        return channel

    def __enter__(self) -> Strangers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("way", [Way(channel, "batch", n) for n in (1, 3) for channel in ("tcp", "unix")], ids=str)
def test_what_a_stranger_asks_an_engine_for_is_no_requests(way: Way, outcomes: Mapping[Way, Outcome]) -> None:
    """It works for requests at the same time, and before, and after."""
    outcome = outcomes[way]
    outcome.verdict()
    asked = outcome.load.asked
    assert outcome.launched == sum(asked.values()) + outcome.by_strangers
    assert sum(outcome.unattributed.values()) >= outcome.by_strangers > 0
    # When the strangers have gone, requests get again what is done for them.
    last = sorted(asked)[400:]
    charged = sum(
        int(dict(span.attributes).get(LAUNCHES, 0))  # type: ignore[call-overload]
        for span in outcome.servers
        if number_of(span) in last
    )
    assert charged >= LEAST_KNOWN * sum(asked[number] for number in last)
    assert {dict(step.attributes)["otel_gpu.linked"] for step in outcome.steps} <= {"superset", "exact", "partial"}


@pytest.mark.parametrize(("channel", "engine", "times"), [("unix", "threads", 2), ("tcp", "asyncio", 1)])
def test_channels_that_were_open_before_charge_nothing_wrongly(
    tmp_path: Path, channel: str, engine: str, times: int
) -> None:
    """They are busy when the agent comes, or comes again. An event loop's tasks for them began before: theirs is nobody's."""
    with pair(tmp_path, channel, engine) as both:
        before, after = (Load(both.port, ("plain",)) for _ in range(2))
        with coming_late(both.pids, before, after, times) as late:
            late.wait_told()
            both.end()
            late.following.end()

            late.assert_nothing_wrong()
            if engine == "threads":
                assert sum(late.charged_after().values()) >= LEAST_KNOWN * sum(after.asked.values())
