"""What does following RDMA cost? A post under our probe, a busy loop of polls, and the agent's CPU while a program posts.

Three programs on copies of the stand-in provider take turns: one that nobody looks at, one with empty probes, one that an agent observes.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import NamedTuple

from bench import ground
from bench.agent_process import AgentProcess
from bench.ground import UnavailableError
from bench.probing import Rivals
from bench.results import Result
from bench.sink import Sink
from otel_gpu.bpf.links import Placement
from otel_gpu.probes.sites import SiteRules
from otel_gpu.receivers.rdma.verbs_work import POST_SEND, VerbsImage, VerbsRequest, look_for_verbs
from otel_gpu.sandbox.work import OpenFile

_PROVIDER, _VERSION = "libstandin-rdmav34.so", 44
_POSTS = 50_000
_TURN, _TURNS = 2_000, 6
"""Posts of a turn, which is shorter than the scheduler's, and turns for each round."""
_DEPTH, _RTS, _WRITE = 128, 3, 0
_POLLS, _SLICE_MS = 10_000, 20
"""Of the loop: polls for each post, and how long it goes on at a time."""
_LOOP_S, _CPU_S = 60.0, 10.0
_SETTLED_S = 20.0
"""So long after it began to poll a program's windows come as they will."""
_DEADLINE_S = 60.0
_MESSAGES = "rdma.messages"


class Slice(NamedTuple):
    """A part of a loop."""

    rate: float
    """Completions by second of CPU."""
    spent_s: float


def usual(slices: Sequence[Slice]) -> float:
    """Return the rate in the middle of slices: of a loop that is mostly let alone, the one when it is."""
    return median(slice_.rate for slice_ in slices)


def undisturbed(slices: Sequence[Slice]) -> float:
    """Return the rate of the fastest tenth of slices, whom nobody disturbed."""
    return sorted(slice_.rate for slice_ in slices)[-1 - len(slices) // 10]


def slowed(slices: Sequence[Slice]) -> float:
    """Return during which part of its CPU time a loop was slowed to less than half of its usual rate."""
    lost_s = sum((1 - one.rate / usual(slices)) * one.spent_s for one in slices if one.rate < usual(slices) / 2)
    return lost_s / sum(one.spent_s for one in slices)


class _Program:
    """A program with one connected queue pair."""

    def __init__(self, where: Path) -> None:
        self.provider = where / _PROVIDER
        self._process = subprocess.Popen(
            [where / "verbs_commands"],
            env={"LD_LIBRARY_PATH": str(where), "STANDIN_PROVIDER": str(self.provider)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()
        self.pid = self._process.pid
        self.posts = 0

    def do(self, *words: object) -> tuple[int, float]:
        """Have it do something, and return what came of it and how many seconds of a CPU it took.

        What else the machine does takes the CPU away, and what a probe does is done on it.
        """
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)
        said = self._answer()
        return int(said["result"]), said["cpu_seconds"]

    def post(self, count: int) -> float:
        """Have it post, and return the nanoseconds of a post."""
        self.posts += count
        return self.do("post", 0, _WRITE, count, 64, 0, 0)[1] / count * 1e9

    def poll(self, seconds: float) -> list[Slice]:
        """Have it poll in a loop for so long."""
        slices = []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            completed, spent_s = self.do("spin", 0, _SLICE_MS, _POLLS, 0)
            self.posts += completed
            slices.append(Slice(completed / spent_s, spent_s))
        return slices

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise UnavailableError("the program that posts ended")
        said: dict[str, float] = json.loads(line)
        return said


def measure(rounds: int) -> Iterator[Result]:
    """Measure all by one agent."""
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        alone, empty, ours = (
            stack.enter_context(_Program(_built(place / name))) for name in ("alone", "empty", "ours")
        )
        rivals = stack.enter_context(contextlib.closing(Rivals()))
        stack.callback(_place_empty(rivals, empty.provider))
        sink = stack.enter_context(Sink())
        config = place / "agent.yaml"
        config.write_text("receivers: {rdma: {processes: all, ports: false}}\nexporters: {otlp: {}}\n")
        agent = stack.enter_context(AgentProcess(sink.endpoint, 1.0, [ours.pid], arguments=["--config", str(config)]))
        agent.wait_for("observing")
        for program in (alone, empty, ours):
            program.do("open", 1)
            program.do("pairs", 0, 1, _DEPTH, 0, _RTS)
        _wait_until_followed(ours, sink)
        yield _of_posts(alone, empty, ours, rounds)
        ours.poll(_SETTLED_S)
        followed = [ours.poll(_LOOP_S) for _ in range(max(rounds // 3, 1))]
        beside = alone.poll(_LOOP_S)
        yield _of_windows(followed, beside)
        yield _of_agent(agent, ours)
        _check_all_counted(ours, sink)
        agent.stop()
        rates = median(map(undisturbed, followed)), undisturbed(ours.poll(_LOOP_S))
        yield _of_loop(rates, (undisturbed(beside), undisturbed(alone.poll(_LOOP_S))))


def _of_posts(alone: _Program, empty: _Program, ours: _Program, rounds: int) -> Result:
    programs = {"none": alone, "empty": empty, "ours": ours}
    names = list(programs)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds * _TURNS):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            taken[name].append(programs[name].post(_TURN))
    # The fastest tenth, whom nobody disturbed.
    took = {name: sorted(times)[len(times) // 10] for name, times in taken.items()}
    return Result(
        "ibv_post_send, ours / empty probe at the same site",
        f"{took['ours']:.0f} ns",
        f"{took['empty']:.0f} ns",
        took["ours"] / took["empty"],
        must=1.5,
        aim=1.3,
        note=f"unprobed {took['none']:.0f} ns",
    )


def _of_windows(followed: Sequence[Sequence[Slice]], alone: Sequence[Slice]) -> Result:
    lost = median(map(slowed, followed))
    return Result(
        "what a busy loop of ibv_poll_cq loses while it is looked at in windows",
        f"{lost:.2%}",
        f"{slowed(alone):.2%}",
        lost * 100,
        "%",
        must=1,
        aim=0.5,
        note=f"of {_LOOP_S} s of the loop, in slices of {_SLICE_MS} ms: where probes are hit it does hardly anything. The reference is "
        "a loop that nobody looks at; whole rates of two processes differ by more than that",
    )


def _of_loop(followed: tuple[float, float], alone: tuple[float, float]) -> Result:
    """Compare rates while the agent was there, and after it: what slows all slices alike is in no window."""
    machine = alone[1] / alone[0]
    return Result(
        "rate of the same loop after the agent / with it, beside windows",
        f"{followed[0]:,.0f}/s",
        f"{followed[1]:,.0f}/s",
        followed[1] / followed[0] / machine,
        must=1.5,
        aim=1.1,
        note=f"completions by second of CPU, of the fastest tenth of slices, whom no window disturbed; the {machine:.3f} is taken off that "
        "the loop went faster meanwhile that nobody looks at. A probe on every poll would make the value some fifty",
    )


def _of_agent(agent: AgentProcess, ours: _Program) -> Result:
    cpu, posts, began = agent.cpu_s(), ours.posts, time.monotonic()
    while time.monotonic() < began + _CPU_S:
        ours.post(_POSTS)
    seconds = time.monotonic() - began
    rate, used = (ours.posts - posts) / seconds, (agent.cpu_s() - cpu) / seconds
    return Result(
        f"agent CPU at {rate:,.0f} posts/s of one thread",
        f"{used:.2%}",
        "a core",
        used * 100,
        "%",
        must=2,
        aim=0.5,
        note="all of the agent, which exports every second; what it does depends on queue pairs, not on posts",
    )


def _built(directory: Path) -> Path:
    done = subprocess.run([ground.ROOT / "tests" / "ground" / "verbs.sh"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(done.stderr.strip())
    directory.mkdir()
    source = ground.ROOT / "tests" / "standins" / "verbs"
    headers = f"CPPFLAGS=-I{done.stdout.strip()}/include"
    made = subprocess.run(
        ["make", "-s", "-C", source, f"OUT={directory}", headers], capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise UnavailableError(f"the stand-in of libibverbs cannot be built: {made.stderr.strip()}")
    return directory


def _place_empty(rivals: Rivals, provider: Path) -> Callable[[], None]:
    size = provider.stat().st_size
    mapped = VerbsImage(0, size, 0, bytes(provider), is_library=False, is_provider=True)
    request = VerbsRequest(SiteRules.here("fast"), (mapped,), (), scan=False, version=_VERSION)
    nothing = OpenFile(-1, None, 0, "")
    with provider.open("rb") as file:
        # Without the three files that show a process's memory.
        files = [*[nothing] * 3, OpenFile(file.fileno(), None, size, str(provider))]
        (answer,) = look_for_verbs.function(files, request)
    placements = [Placement(site.offset, 0) for site in answer.sites if site.program == POST_SEND]
    if not placements:
        raise UnavailableError(f"{provider} has no function that posts: {answer.refused}")
    return rivals.place("empty", provider, placements)


def _wait_until_followed(program: _Program, sink: Sink) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not sink.totals(_MESSAGES).get(program.pid):
        if time.monotonic() > deadline:
            raise UnavailableError("no post was seen")
        program.do("post", 0, _WRITE, 1, 64, 0, 0)
        time.sleep(0.2)
    # What is posted from here on is counted, beside what was seen until now.
    time.sleep(2)
    program.posts = sink.totals(_MESSAGES)[program.pid]


def _check_all_counted(program: _Program, sink: Sink) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while (counted := sink.totals(_MESSAGES).get(program.pid, 0)) != program.posts:
        if time.monotonic() > deadline:
            raise UnavailableError(f"{counted:,} of {program.posts:,} posts were counted")
        time.sleep(0.5)
