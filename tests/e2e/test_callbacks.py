"""Does every launch go to the callback of ROS 2 that asked for it? On stand-ins of rclcpp, rcl and a middleware with their symbols."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from otel_gpu.signals import telemetry_spans
from otel_gpu.signals.spans import Span, SpanKind, SpanStatus
from tests.e2e import ground
from tests.e2e.processes import Program
from tests.e2e.requests import LAUNCHES, Following, Observer
from tests.waiting import until

_STANDIN = ground.PROGRAMS.parent / "standins" / "ros2"
_KIND = "otel_gpu.callback.kind"
_KINDS = {"subscription": SpanKind.CONSUMER, "service": SpanKind.SERVER}
_OF_CHILDREN = ("gpu batch", "gpu wait", "gpu copy")


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stand-in and the program on it are."""
    return built(tmp_path_factory.mktemp("ros2"))


def built(directory: Path) -> Path:
    """Make them there, and return where they are."""
    if any(shutil.which(tool) is None for tool in ("gcc", "g++", "make")):
        pytest.skip("no C++ compiler: apt-get install g++ make")
    subprocess.run(["make", "-s", "-C", _STANDIN, f"OUT={directory}"], check=True, capture_output=True)
    return directory


@dataclass(frozen=True)
class Ran:
    """A program that ran callbacks under observation, and what it says that they did."""

    following: Following
    said: dict[str, object]

    @property
    def callbacks(self) -> list[Span]:
        """Their spans."""
        return [span for span in self.following.spans if _KIND in dict(span.attributes)]

    @property
    def truth(self) -> Counter[tuple[object, ...]]:
        """Kind, name, launches and whether it threw, of every callback."""
        return Counter(map(tuple, self.said["callbacks"]))  # type: ignore[call-overload]

    def seen(self) -> Counter[tuple[object, ...]]:
        """The same by the spans."""
        return Counter(map(_seen, self.callbacks))

    def unattributed(self) -> dict[str, int]:
        """Launches without an owner."""
        return self.following.unattributed()

    def check(self) -> None:
        """All is where it belongs: nothing is charged wrongly, and nothing is missing but what found no room."""
        assert self.seen() == self.truth
        unattributed = self.unattributed()
        assert unattributed.pop("full", 0) == self.said["beyond"]
        assert sum(unattributed.values()) == self.said["nobodys"]
        owned = sum(int(str(dict(span.attributes)[LAUNCHES])) for span in self.callbacks)
        assert owned + sum(self.unattributed().values()) == self.following.launches()
        assert [span for span in self.following.spans if telemetry_spans.declaration(span) is None] == []


def _seen(span: Span) -> tuple[object, ...]:
    attributes = dict(span.attributes)
    name = attributes.get("messaging.destination.name", attributes.get("rpc.method", ""))
    return attributes[_KIND], name, attributes[LAUNCHES], attributes.get("error.type") == "exception"


@contextmanager
def ran(directory: Path, observer: Observer, program: Path, *arguments: object) -> Iterator[Ran]:
    """Run a program under observation from its beginning on."""
    with (
        Program([program, *map(str, arguments)], directory) as running,
        _ready(running),
        Following([running.pid], observer=observer) as following,
    ):
        following.wait_followed()
        said = running.run_phase()
        yield finished(running, following, said)


@contextmanager
def _ready(program: Program) -> Iterator[None]:
    program.ready()
    yield


def finished(program: Program, following: Following, said: dict[str, object]) -> Ran:
    """Have a program end that has run its callbacks, and return what was seen of them."""
    made = Ran(following, said)

    def are_told() -> bool:
        following.take_spans()
        return len(made.callbacks) >= made.truth.total()

    until(are_told, lambda: f"{len(made.callbacks)} of {made.truth.total()} callbacks were told")
    program.go()
    program.wait()
    following.end()
    return made


@pytest.mark.parametrize("version", ["", "before_jazzy"], ids=["from-jazzy", "before-jazzy"])
@pytest.mark.parametrize(("threads", "rounds"), [(1, 20), (6, 40)], ids=["one-thread", "six-threads"])
def test_every_launch_goes_to_its_callback(
    tmp_path: Path, observer: Observer, standin: Path, version: str, threads: int, rounds: int
) -> None:
    with ran(tmp_path, observer, standin / version / "callbacks", threads, rounds) as observed:
        observed.check()


def test_every_launch_goes_to_its_callback_without_whatever_is_due(
    tmp_path: Path, observer: Observer, standin: Path
) -> None:
    """As StaticSingleThreadedExecutor runs them."""
    with ran(tmp_path, observer, standin / "callbacks", 2, 20, "static") as observed:
        observed.check()


def test_what_is_said_of_callbacks(tmp_path: Path, observer: Observer, standin: Path) -> None:
    with ran(tmp_path, observer, standin / "callbacks", 1, 1) as observed:
        observed.check()
        by_name = {str(_seen(span)[1]): span for span in observed.callbacks}
        plain = [span for span in observed.callbacks if _seen(span)[1] == "/t0/r0/plain"]

        assert {span.kind for span in observed.callbacks if dict(span.attributes)[_KIND] == "timer"} == {
            SpanKind.INTERNAL
        }
        for span in observed.callbacks:
            kind = str(dict(span.attributes)[_KIND])
            assert span.kind is _KINDS.get(kind, SpanKind.INTERNAL)
            assert span.parent_id == b""
        assert [span.name for span in plain] == ["process /t0/r0/plain"] * 3
        ids = [str(dict(span.attributes)["messaging.message.id"]) for span in sorted(plain, key=lambda s: s.start_ns)]
        assert [re.sub(r"^010faa00[0-9a-f]{24}:", "", said) for said in ids] == ["1", "2", "3"]
        assert len({said.partition(":")[0] for said in ids}) == 1
        service = by_name["/t0/r0/service"]
        assert service.name == "/t0/r0/service"
        assert dict(service.attributes)["rpc.system.name"] == "ros2"
        assert str(dict(service.attributes)["messaging.message.id"]).endswith(":1")
        assert by_name["/t0/r0/throws"].status is SpanStatus.ERROR
        assert "/t0/r0/silent" not in by_name, "nothing had come"
        children = [span for span in observed.following.spans if span.parent_id == service.context.span_id]
        assert {child.name for child in children} == {"gpu batch", "gpu wait"}
        copied = {dict(span.attributes).get("gpu.cuda.memory.copy.calls.h2d") for span in plain}
        assert copied == {1}
        inner, outer = (
            by_name["/t0/r0/inner"],
            [s for s in observed.callbacks if s.start_ns < by_name["/t0/r0/inner"].start_ns < s.end_ns],
        )
        assert [dict(span.attributes)[_KIND] for span in outer] == ["timer"]
        assert outer[0].end_ns > inner.end_ns


def test_an_agent_that_comes_amid_a_callback_charges_what_begins_then(tmp_path: Path, standin: Path) -> None:
    with Program([standin / "callbacks", "1", "1", "late"], tmp_path) as running:
        running.event("inside")
        with Following([running.pid]) as following:
            following.wait_followed()
            said = running.run_phase()
            finished(running, following, said).check()


def test_metrics_of_callbacks(tmp_path: Path, observer: Observer, standin: Path) -> None:
    with ran(tmp_path, observer, standin / "callbacks", 1, 2) as observed:
        durations, launches = Counter[object](), Counter[object]()
        for m in observed.following.measured:
            kind = dict(m.attributes).get(_KIND)
            if m.metric.name == "otel_gpu.callback.duration":
                durations[kind] += m.value.count  # type: ignore[union-attr]
            elif m.metric.name == "otel_gpu.callback.kernel.launch.calls":
                launches[kind] += int(m.value.sum)  # type: ignore[union-attr]

        said = [(kind, count) for kind, _, count, _ in observed.said["callbacks"]]  # type: ignore[attr-defined]
        assert durations == Counter(kind for kind, _ in said)
        assert launches == sum((Counter({kind: count}) for kind, count in said), Counter[object]())
