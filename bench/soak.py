"""What does the agent hold after half an hour of storms? `python -m bench.soak [--minutes 30] [--every 30]`.

Threads, processes, libraries and programs come and go all the time, in a pid namespace of their own, so that what else
the host runs is not counted. Prints what the agent holds over time, and at the end what is left and whether every launch
was counted; exit code 1 where something has grown or is missing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench import faults, ground, pid_namespace
from bench.agent_process import AgentProcess
from bench.holdings import Holdings, holdings
from bench.sink import Sink
from bench.target import Target
from otel_gpu.signals import cuda

_INTERVAL_S = 5.0
_THREADS, _LAUNCHES, _EXECS, _LIBRARIES = 16, 50, 3, 4
_PAUSE_S = 0.2
_POOLED = 11
"""Threads: a pool starts another one when more is to be done at once than ever before, and has few at most."""
_LOOK_S, _STILL_S, _DEADLINE_S = 0.5, 6.0, 60.0
"""Libraries stay probed for five seconds after their last use: what has not changed for longer stays."""
_LONG_S, _GROWN_MB = 600.0, 8.0
"""What leaks in every round of a storm has become more than what comes and goes after so long."""


@dataclass(frozen=True, slots=True)
class Soak:
    """What came of it."""

    held: list[tuple[float, Holdings]]
    """At which second, and what: the first when everything had been used once, the last when the storms were over."""
    launched: int
    counted: int
    rounds: dict[str, int]
    """Of each storm."""

    def faults(self) -> Iterator[str]:
        """Say what has grown, and what is missing."""
        if self.counted != self.launched:
            yield f"{self.counted:,} of {self.launched:,} launches counted"
        first, last = self.held[0][1], self.held[-1][1]
        for what, more in (("descriptors", 0), ("threads", _POOLED), ("children", 0)):
            before, after = getattr(first, what), getattr(last, what)
            if after > before + more:
                yield f"{after} {what}, {before} before"
        for name, entries in last.entries.items():
            if entries:
                yield f"{entries} entries in {name}"
        if (lasted_s := self.held[-1][0]) >= _LONG_S:
            second, fourth = (
                max(held.rss_bytes for at_s, held in self.held if from_ <= at_s / lasted_s <= to)
                for from_, to in ((0.25, 0.5), (0.75, 1.0))
            )
            if (grown := (fourth - second) / 1e6) > _GROWN_MB:
                yield f"{grown:.1f} MB more memory in the last quarter than in the second"


class _Storms:
    """The storms, each in a thread of its own, until they are over."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.launched = 0
        self.rounds: dict[str, int] = {}
        self.errors: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._go_on, args=(storm,), name=f"soak-{storm.__name__}")
            for storm in (self.threads, self.processes, self.programs, self.libraries)
        ]

    @contextmanager
    def raging(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()

    def threads(self) -> None:
        """A program with threads that launch and end."""
        with Target.on_driver() as target:
            for _ in range(10):
                target.do(f"storm {_THREADS} {_LAUNCHES}")
                target.do(f"churn {_THREADS} {_LAUNCHES}")
        self._count(target.calls)

    def processes(self) -> None:
        """Short lives, several at a time."""
        targets = [Target.on_driver() for _ in range(4)]
        for target in targets:
            target.do(f"launch {_LAUNCHES}")
            target.close()
            self._count(target.calls)

    def programs(self) -> None:
        """One program after the other in the same process."""
        with Target.on_driver() as target:
            for _ in range(_EXECS):
                target.do(f"launch {_LAUNCHES}")
                target.do("exec")
            target.do(f"launch {_LAUNCHES}")
        self._count(target.calls)

    def libraries(self) -> None:
        """Drivers that nobody has seen before, mapped, unmapped, mapped again, and gone."""
        own = [Path(tempfile.mkdtemp(dir=self._directory)) for _ in range(_LIBRARIES)]
        for directory in own:
            shutil.copy(ground.mock_driver() / "libcuda.so.1", directory)
        targets = [Target.on_driver(directory) for directory in own]
        for target, directory in zip(targets, own):
            # Not launches: the first calls on a library that nobody knew may come before its probes.
            target.do(f"pair {_LAUNCHES}")
            target.do("reopen")
            target.do(f"pair {_LAUNCHES}")
            target.close()
            shutil.rmtree(directory)

    def _go_on(self, storm: Callable[[], None]) -> None:
        while not self._over.is_set():
            try:
                storm()
            except Exception as e:  # noqa: BLE001 - told at the end
                self.errors.append(e)
                return
            self.rounds[storm.__name__] = self.rounds.get(storm.__name__, 0) + 1
            self._over.wait(_PAUSE_S)

    def _count(self, launched: int) -> None:
        with self._lock:
            self.launched += launched


def soak(seconds: float, every_s: float, tell: Callable[[float, Holdings], None] = lambda *_: None) -> Soak:
    """Let the storms rage for so long."""
    held: list[tuple[float, Holdings]] = []

    def note(at_s: float, now: Holdings) -> None:
        held.append((at_s, now))
        tell(at_s, now)

    known = {"LD_LIBRARY_PATH": str(ground.mock_driver())}
    with tempfile.TemporaryDirectory(prefix="otel-gpu-soak-") as directory, Sink() as sink:
        with AgentProcess(sink.endpoint, _INTERVAL_S, environment=known) as agent:
            agent.wait_for("observing")
            # What is loaded or made room for when it is first needed belongs to the agent, not to a storm.
            warming, storms = _Storms(Path(directory)), _Storms(Path(directory))
            with warming.raging():
                pass
            note(0.0, _at_rest(agent.pid))
            began = time.monotonic()
            with storms.raging():
                while (left := began + seconds - time.monotonic()) > 0 and not storms.errors:
                    time.sleep(min(every_s, left))
                    note(time.monotonic() - began, holdings(agent.pid))
            note(time.monotonic() - began, _at_rest(agent.pid))
        for error in warming.errors + storms.errors:
            raise error
        counted = sum(sink.totals(cuda.KERNEL_LAUNCH_CALLS.name).values())
    return Soak(held, warming.launched + storms.launched, counted, storms.rounds)


def _at_rest(pid: int) -> Holdings:
    """Return what an agent holds when nothing is read, and that has not changed for a while, memory left aside."""
    deadline, since, before = time.monotonic() + _DEADLINE_S, time.monotonic(), holdings(pid)
    while (now_s := time.monotonic()) < min(since + _STILL_S, deadline):
        time.sleep(_LOOK_S)
        now = holdings(pid)
        if now.children or replace(now, rss_bytes=0) != replace(before, rss_bytes=0):
            since = now_s
        before = now
    return before


def _row(passed_s: float, held: Holdings) -> str:
    entries = " ".join(f"{name}={n}" for name, n in sorted(held.entries.items()) if n)
    numbers = f"{held.descriptors:7} {held.threads:8} {held.children:9} {held.rss_bytes / 1e6:8.1f}"
    return f"{passed_s:8.0f} {numbers}  {entries}"


def main() -> int:
    """Print what is held over time, and what is left."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=30.0, help="seconds from one row to the next")
    arguments = parser.parse_args()
    if not pid_namespace.is_own():
        return pid_namespace.run("bench.soak", *sys.argv[1:])
    print("       s  descr.  threads  children   RSS MB  entries of hash tables")
    done = soak(arguments.minutes * 60, arguments.every, lambda *what: print(_row(*what), flush=True))
    print(", ".join(f"{n} rounds of {storm}" for storm, n in done.rounds.items()))
    print(f"{done.counted:,} of {done.launched:,} launches counted")
    return faults.tell(done.faults())


if __name__ == "__main__":
    sys.exit(main())
