"""Does what one process does for another's request go to that request, where it came over a plain channel?"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e import ground
from tests.e2e.processes import Program
from tests.e2e.requests import LAUNCHES, Following
from tests.e2e.test_requests import Load, coming_late, judge, owned

MESSAGE_BYTES = 64
STRANGERS_NUMBER = 100_000
"""No request has it."""
LEAST_KNOWN = 0.5
"""Of launches, on however busy a host. The kernel says that something was sent after it was handed over and whoever waits for it
was woken: that one may have read it, and launched all that it asks for, while the sender waits for a CPU. What is launched
before the kernel has said so is nobody's, and what follows is the request's. On an idle host that is one in a thousand."""


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

    def end(self, following: Following) -> int:
        """End both, take what is left, and return how many launches the engine made."""
        assert self.program.process.stdin is not None
        self.program.process.stdin.close()
        launched = int(str(self.program.event("end")["launches"]))
        assert self.program.wait() == 0, self.program.error_text
        following.end()
        return launched


@contextmanager
def pair(directory: Path, channel: str, engine: str) -> Iterator[Pair]:
    with Program(
        [sys.executable, ground.PROGRAMS / "channel_server.py", channel, engine, directory], directory
    ) as program:
        yield Pair(program)


@pytest.mark.parametrize(
    ("channel", "engine"),
    [
        ("tcp", "threads"),
        ("unix", "threads"),
        ("seqpacket", "threads"),
        ("pair", "pairs"),
        ("dgram", "pairs"),
        ("pipe", "pipes"),
        ("simplex", "simplex"),
        ("fifo", "fifos"),
        ("stdio", "stdio"),
        ("fresh", "threads"),
        ("tcp", "asyncio"),
        ("unix", "asyncio"),
    ],
)
def test_what_a_message_asks_for_is_its_requests(tmp_path: Path, channel: str, engine: str) -> None:
    with pair(tmp_path, channel, engine) as both, Following(both.pids) as following:
        following.wait_followed()
        load = Load(both.port, ("plain",))
        load.run(400)
        following.wait_spans(len(load.asked))
        launched = both.end(following)

        verdict = judge(following, load)
        assert following.launches() == launched
        assert owned(following) + sum(following.unattributed().values()) == launched
        assert verdict.wrong == 0
        assert verdict.right >= LEAST_KNOWN * sum(load.asked.values()), verdict
        # The rest is nobody's, and so is what follows the answers.
        background = launched - sum(load.asked.values())
        assert sum(following.unattributed().values()) == background + verdict.missing
        # What an event loop has read before the kernel said who sent it is nobody's by that reason (LEAST_KNOWN).
        unseen = {"ambiguous"} if engine == "asyncio" else set()
        assert following.unattributed().keys() <= {"idle", "no_request", "outlived"} | unseen


@pytest.mark.parametrize(
    ("channel", "is_followed"), [("queue", False), ("locked", True), ("pool", True), ("executor", False)]
)
def test_what_multiprocessing_hands_on_is_charged_to_nobody_wrongly(
    tmp_path: Path, channel: str, is_followed: bool
) -> None:
    """A queue's thread was begun by the first request that put something in, and sends for all; those of pools are alike."""
    with pair(tmp_path, channel, "none") as both, Following(both.pids) as following:
        following.wait_followed()
        load = Load(both.port, ("plain",))
        load.run(200)
        following.wait_spans(len(load.asked))
        launched = both.end(following)

        verdict = judge(following, load)
        assert verdict.wrong == 0
        assert (verdict.right > 0) == is_followed
        assert owned(following) + sum(following.unattributed().values()) == following.launches() == launched


def test_a_batch_is_linked_to_all_that_it_may_be_for(tmp_path: Path) -> None:
    """One thread reads what is there of all connections, and works for all of it then."""
    with pair(tmp_path, "tcp", "batch") as both, Following(both.pids) as following:
        following.wait_followed()
        load = Load(both.port, ("plain",))
        load.run(400)
        following.wait_spans(len(load.asked))
        launched = both.end(following)

        # What was for one alone is right; of the rest each has a part, and what it got a part of was for others as well.
        alone = [s for s in following.servers if dict(s.attributes).get("otel_gpu.attribution") != "share"]
        for span in alone:
            number = int(str(dict(span.attributes)["url.path"]).split("/")[2])
            assert int(dict(span.attributes).get(LAUNCHES, 0)) <= load.asked[number]  # type: ignore[call-overload]
        steps = [span for span in following.spans if span.name == "gpu step"]
        assert any(len(step.links) > 1 for step in steps)
        assert {dict(step.attributes)["otel_gpu.linked"] for step in steps} <= {"superset", "exact"}
        assert owned(following) + sum(following.unattributed().values()) == following.launches() == launched


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


@pytest.mark.parametrize("channel", ["tcp", "unix"])
@pytest.mark.parametrize("clients", [1, 3])
def test_what_a_stranger_asks_an_engine_for_is_no_requests(tmp_path: Path, channel: str, clients: int) -> None:
    """It works for requests at the same time, and before, and after."""
    with pair(tmp_path, channel, "batch") as both, Following(both.pids) as following:
        following.wait_followed()
        load = Load(both.port, ("plain",))
        with Strangers(both.place, clients) as strangers:
            load.run(400)
        load.run(200)
        following.wait_spans(len(load.asked))
        launched = both.end(following)

        asked = sum(load.asked.values())
        assert launched == asked + strangers.launches
        assert owned(following) + sum(following.unattributed().values()) == following.launches() == launched
        assert sum(following.unattributed().values()) >= strangers.launches
        # When the strangers have gone, requests get again what is done for them.
        last = [span for span in following.servers if int(str(dict(span.attributes)["url.path"]).split("/")[2]) > 400]
        charged = sum(int(dict(span.attributes).get(LAUNCHES, 0)) for span in last)  # type: ignore[call-overload]
        assert charged >= LEAST_KNOWN * sum(times for number, times in load.asked.items() if number > 400)
        steps = [span for span in following.spans if span.name == "gpu step"]
        assert {dict(step.attributes)["otel_gpu.linked"] for step in steps} <= {"superset", "exact", "partial"}


@pytest.mark.parametrize(("channel", "engine", "times"), [("unix", "threads", 2), ("tcp", "asyncio", 1)])
def test_channels_that_were_open_before_charge_nothing_wrongly(
    tmp_path: Path, channel: str, engine: str, times: int
) -> None:
    """They are busy when the agent comes, or comes again. An event loop's tasks for them began before: theirs is nobody's."""
    with pair(tmp_path, channel, engine) as both:
        before, after = (Load(both.port, ("plain",)) for _ in range(2))
        with coming_late(both.pids, before, after, times) as late:
            late.wait_told()
            both.end(late.following)

            late.assert_nothing_wrong()
            if engine == "threads":
                assert sum(late.charged_after().values()) >= LEAST_KNOWN * sum(after.asked.values())
