"""Does what one process does for another's request go to that request, where it came over a plain channel?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e import ground
from tests.e2e.processes import Program
from tests.e2e.requests import LAUNCHES, Following
from tests.e2e.test_requests import Load, coming_late, judge, owned


class Pair:
    """A server and its engine."""

    def __init__(self, program: Program) -> None:
        self.program = program
        said = program.event("ready")
        self.port, self.engine = int(str(said["port"])), int(str(said["engine"]))

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
        # What follows the answers is nobody's, and so is what is done for a message before it was seen being sent.
        assert verdict.wrong == 0
        assert verdict.missing <= sum(load.asked.values()) // 20, verdict


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
                missing = sum(after.asked.values()) - sum(late.charged_after().values())
                assert missing <= sum(after.asked.values()) // 20
