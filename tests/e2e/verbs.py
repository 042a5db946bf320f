"""How is a program that uses verbs started and told what to do, on a stand-in of libibverbs? And what does the agent say of it?"""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pytest

from otel_gpu.config.model import Config
from otel_gpu.config.settings import Discovery
from otel_gpu.exporters.file.settings import FileSettings
from otel_gpu.receivers.cuda.settings import CudaSettings
from otel_gpu.receivers.nccl.receiver import NcclReceiver
from otel_gpu.receivers.nccl.settings import NcclSettings
from otel_gpu.receivers.rdma.receiver import RdmaReceiver
from otel_gpu.receivers.rdma.settings import RdmaSettings
from otel_gpu.receivers.self.settings import SelfSettings
from otel_gpu.service.agent import Agent
from otel_gpu.signals.metrics import Buckets, Point
from tests.e2e import ground
from tests.e2e.processes import DEADLINE_S

_STANDIN = Path(__file__).parent.parent / "standins" / "verbs"
WRITE, SEND, READ = 0, 2, 4
RTS = 3


def built(directory: Path) -> Path:
    """Return a directory with the stand-in of libibverbs and of a provider, and the program on them."""
    if shutil.which("gcc") is None or shutil.which("make") is None:
        pytest.skip("no C compiler: apt-get install gcc make")
    headers = f"CPPFLAGS=-I{ground.verbs() / 'include'}"
    subprocess.run(["make", "-s", "-C", _STANDIN, f"OUT={directory}", headers], check=True, capture_output=True)
    return directory


class Verbs:
    """A program that does with verbs what it is told. A context manager."""

    def __init__(self, where: Path, **environment: str) -> None:
        self.process = subprocess.Popen(
            [where / "verbs_commands"],
            env={**os.environ, "LD_LIBRARY_PATH": str(where), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._said()["event"] == "ready"

    def __enter__(self) -> Verbs:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(DEADLINE_S)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def do(self, *words: object) -> int:
        """Have it do something, and return what came of it."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return int(self._said()["result"])

    def end(self) -> int:
        """Have it end well, and return its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.write("quit\n")
        self.process.stdin.close()
        return self.process.wait(DEADLINE_S)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def _said(self) -> dict[str, object]:
        return json.loads(self._lines.get(timeout=DEADLINE_S))


class Observed:
    """An agent that observes some programs."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    @property
    def receiver(self) -> RdmaReceiver:
        """What follows RDMA in it."""
        receiver = self.agent._observation.receivers["rdma"]
        assert isinstance(receiver, RdmaReceiver)
        return receiver

    def points(self, pid: int) -> Points:
        """Return what it says of one program."""
        return Points([p for p in self.agent.snapshot() if dict(p.resource.attributes).get("process.pid") == pid])

    def until(self, pid: int, condition: Callable[[Points], bool]) -> Points:
        """Wait until it says so of a program, and return all that it says then."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition(points := self.points(pid)):
            assert time.monotonic() < deadline, points.all
            time.sleep(0.05)
        return points

    def until_followed(self, *programs: Verbs) -> None:
        """Wait until the completions of programs, which have devices open, are looked at."""
        deadline = time.monotonic() + DEADLINE_S
        while not {p.pid for p in programs} <= {program.pid for program in self.receiver.placing.open_windows()}:
            assert time.monotonic() < deadline, self.receiver.placing.probes()
            time.sleep(0.02)
        self.receiver.placing.settle(DEADLINE_S)

    def until_nccl(self) -> None:
        """Wait until calls of NCCL are counted."""
        receiver = self.agent._observation.receivers["nccl"]
        assert isinstance(receiver, NcclReceiver)
        deadline = time.monotonic() + DEADLINE_S
        while not receiver.probes()[0]:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def until_placed(self, *programs: Verbs) -> None:
        """Wait until programs that have libibverbs would be seen opening a device."""
        deadline = time.monotonic() + DEADLINE_S
        while not {p.pid for p in programs} <= {program.pid for program in self.receiver.placing.sees_posts()}:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        self.receiver.placing.settle(DEADLINE_S)


class Points:
    """What is said of a program."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.all = points

    def by(self, name: str, *names: str) -> Counter[object]:
        """Add up a metric by attributes: of histograms how many there are."""
        found: Counter[object] = Counter()
        for point in self.all:
            if point.name == name:
                attrs = dict(point.attributes)
                key = tuple(attrs.get(n) for n in names)
                found[key[0] if len(key) == 1 else key] += (
                    point.value.count if isinstance(point.value, Buckets) else point.value
                )
        return +found

    def total(self, name: str) -> float:
        """Add up a metric."""
        return sum(self.by(name).values())

    def seconds(self, name: str) -> float:
        """Return the sum of a histogram."""
        return sum(p.value.sum for p in self.all if p.name == name and isinstance(p.value, Buckets))


@contextmanager
def observing(directory: Path, *programs: Verbs, nccl: bool = False, **settings: object) -> Iterator[Observed]:
    """Observe programs, and no others; with `nccl` also what they ask of NCCL."""
    config = Config(
        receivers={
            "cuda": CudaSettings(),
            "rdma": RdmaSettings(**{"processes": "all", "ports": False, **settings}),
            "self": SelfSettings(),
            **({"nccl": NcclSettings()} if nccl else {}),
        },
        exporters={"file": FileSettings(str(directory))},
        discovery=Discovery(pids=tuple(p.pid for p in programs)),
        interval_s=3600.0,
    )
    with Agent(config) as agent:
        yield Observed(agent)
