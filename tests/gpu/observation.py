"""What did the agent see of a program on the GPU? The program, started and spoken to, and the agent's series, read as a library."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from otel_gpu import Agent, Config
from otel_gpu.signals.metrics import Buckets, Point
from tests.gpu.hardware import Gpu

_ROOT = Path(__file__).parent.parent.parent
_PROGRAMS = Path(__file__).parent / "programs"
_DEADLINE_S = 240
_SETTLES_S = 60
"""How long names and the device's identity get: launches are shown once the library with their kernel has been read."""
_WAIT_S, _LATER_S = 0.2, 1.0
_KINDS = "cuda.memcpy.kind"


class Program:
    """A program of `programs/`, which goes from stop to stop. A context manager."""

    def __init__(self, script: str, *options: str) -> None:
        self._errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - closed in __exit__
        self.process = subprocess.Popen(
            [sys.executable, _PROGRAMS / script, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.pid = self.process.pid

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.process.kill()
        self.process.communicate()
        self._errors.close()

    def reach(self, event: str) -> dict[str, Any]:
        """Wait until it stops at this event, and return what it says."""
        alarm = threading.Timer(_DEADLINE_S, self.process.kill)
        alarm.start()
        line = self.process.stdout.readline()
        alarm.cancel()
        if not line:
            self.process.wait()
            self._errors.seek(0)
            raise AssertionError(
                f"no {event!r}; it ended with {self.process.returncode}: {self._errors.read()[-4000:]}"
            )
        said: dict[str, Any] = json.loads(line)
        assert said["event"] == event
        return said

    def let_go(self) -> None:
        """Let it go on, without waiting."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def go(self, event: str) -> dict[str, Any]:
        """Let it go on to this event."""
        self.let_go()
        return self.reach(event)


@dataclass(frozen=True)
class Snapshot:
    """Every series of one process, and of the agent itself, at one time."""

    pid: int
    points: list[Point]

    def by(self, name: str, attribute: str) -> Counter[str]:
        """Add up a counter's or gauge's series by an attribute."""
        totals: Counter[str] = Counter()
        for point in self._named(name):
            assert not isinstance(point.value, Buckets)
            totals[str(dict(point.attributes).get(attribute))] += point.value
        return totals

    def total(self, name: str) -> float:
        return self.by(name, "").total()

    def copies(self) -> dict[str, tuple[int, int]]:
        """Return copies and bytes, by their kind."""
        counts: Counter[str] = Counter()
        sums: Counter[str] = Counter()
        for point in self._named("gpu.cuda.memory.copies"):
            assert isinstance(point.value, Buckets)
            kind = str(dict(point.attributes)[_KINDS])
            counts[kind] += point.value.count
            sums[kind] += int(point.value.sum)
        return {kind: (counts[kind], sums[kind]) for kind in counts}

    def values(self, attribute: str) -> set[str]:
        """Return every value of an attribute."""
        found = (dict(p.attributes).get(attribute) for p in self.points if self._is_mine(p))
        return {str(value) for value in found if value is not None}

    def _is_mine(self, point: Point) -> bool:
        return dict(point.resource.attributes).get("process.pid") == self.pid

    def _named(self, name: str) -> Iterator[Point]:
        # The agent's own series have its own pid; their names are its own too.
        return (p for p in self.points if p.name == name and (self._is_mine(p) or name.startswith("otel_gpu.")))


class Observer:
    """An agent that observes one program."""

    def __init__(self, agent: Agent, pid: int) -> None:
        self._agent = agent
        self._pid = pid

    def look(self, until: Callable[[Snapshot], bool] = lambda _: True) -> Snapshot:
        """Return what was counted so far; waits some time for what comes late, such as names."""
        deadline = time.monotonic() + _SETTLES_S
        while True:
            time.sleep(_WAIT_S)
            seen = Snapshot(self._pid, self._agent.snapshot())
            if until(seen) or time.monotonic() > deadline:
                break
        # What is too much may come later than what was awaited.
        time.sleep(_LATER_S)
        return Snapshot(self._pid, self._agent.snapshot())


@contextmanager
def observing(gpu: Gpu, pid: int, directory: Path) -> Iterator[Observer]:
    """Observe a process with every kernel's name as the driver has it."""
    config = directory / "agent.yaml"
    receivers = {"cuda": {"libraries": [gpu.path]}, "nvml": {}, "self": {}}
    names = {"kernel_names": {"top": 100_000, "demangle": "full"}}
    config.write_text(json.dumps({"receivers": receivers, "processors": names}))
    with Agent(Config.load(config, environ={}, pids=(pid,), output=f"file:{directory / 'out'}")) as agent:
        yield Observer(agent, pid)


def record(pid: int, seconds: float, path: Path) -> None:
    """Take a launch profile as users do."""
    command = [sys.executable, "-m", "otel_gpu", "record", "--pid", str(pid), "--duration", str(seconds), "-o", path]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False, timeout=_DEADLINE_S)
    assert done.returncode == 0, done.stderr
    print(done.stdout, done.stderr)
