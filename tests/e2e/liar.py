"""How is a hostile program started, on a driver of its own that lies? And what does the agent say of it?"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_gpu.bpf.abi.programs import Table
from otel_gpu.bpf.maps import BpfMap
from otel_gpu.bpf.object import BpfObject
from otel_gpu.config.model import Config
from otel_gpu.receivers.cuda.settings import CudaSettings
from otel_gpu.receivers.self.settings import SelfSettings
from otel_gpu.service.agent import Agent
from otel_gpu.signals.metrics import Buckets, Point
from tests.e2e import ground
from tests.e2e.inside import cuda_of
from tests.e2e.processes import DEADLINE_S, Program

_STANDIN = Path(__file__).parent.parent / "standins" / "liar"
LOST = "otel_gpu.process.events.lost"
LAUNCHES = "gpu.cuda.kernel.launch.calls"


def built() -> Path:
    """Return the directory of the lying driver and of the program on it."""
    if shutil.which("gcc") is None or shutil.which("make") is None:
        pytest.skip("no C compiler: apt-get install gcc make")
    subprocess.run(["make", "-s", "-C", _STANDIN], check=True, capture_output=True)
    return _STANDIN / "build"


def hostile(directory: Path, **what: int) -> Program:
    """Start a program that does each of these so often, once it is told to go; and lives on until it is told again."""
    words = [str(word) for pair in what.items() for word in pair]
    return Program([built() / "hostile", *words], directory, {"LD_LIBRARY_PATH": str(built())})


def storm(directory: Path, *options: str) -> Program:
    """Start a well-behaved program on the mock driver."""
    return Program([ground.part("programs") / "launch_storm", *options], directory)


def observer() -> Agent:
    """Return an agent that has its probes in both drivers before any of them is used."""
    drivers = (str(built() / "libcuda.so.1"), str(ground.part("mock") / "libcuda.so.1"))
    # What has ended is dropped with the first export.
    return Agent(
        Config(
            receivers={"cuda": CudaSettings(libraries=drivers), "self": SelfSettings()}, exporters={}, interval_s=3600
        )
    )


@contextmanager
def small_tables(monkeypatch: pytest.MonkeyPatch, **entries: int) -> Iterator[None]:
    """Have objects loaded meanwhile with tables of so many entries."""
    load = BpfObject.load

    def load_small(self: BpfObject, **options: object) -> None:
        for name, size in entries.items():
            self.configure_map(name, max_entries=size)
        load(self, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(BpfObject, "load", load_small)
        yield


class Said:
    """What an agent says of one process now."""

    def __init__(self, agent: Agent, pid: int) -> None:
        self.points = [p for p in agent.snapshot() if dict(p.resource.attributes).get("process.pid") == pid]

    @classmethod
    def of(cls, agent: Agent, pid: int, launches: int) -> Said:
        """Wait for so many launches: those of kernels that wait for their names are counted later."""
        deadline = time.monotonic() + DEADLINE_S
        while (said := cls(agent, pid)).total(LAUNCHES) < launches and time.monotonic() < deadline:
            time.sleep(0.05)
        return said

    def total(self, name: str) -> float:
        """Add up a metric's series."""
        return sum(_number(p) for p in self.points if p.name == name)

    def by(self, name: str, attribute: str) -> Counter[object]:
        """Add up a metric's series by one attribute."""
        found: Counter[object] = Counter()
        for point in self.points:
            if point.name == name:
                found[dict(point.attributes).get(attribute)] += _number(point)
        return found

    def names(self, attribute: str) -> set[object]:
        """Return the values that an attribute has on any series."""
        return {dict(p.attributes)[attribute] for p in self.points if attribute in dict(p.attributes)}

    def services(self) -> Counter[object]:
        """Return how many launches each program of the process made, by its name."""
        found: Counter[object] = Counter()
        for point in self.points:
            if point.name == LAUNCHES:
                found[dict(point.resource.attributes)["service.name"]] += point.value
        return found


def tables(agent: Agent) -> dict[str, BpfMap]:
    """Return the tables that programs share, by name."""
    bpf = cuda_of(agent)._object
    return {t.name.lower(): bpf.map(t.name.lower()) for t in cuda_of(agent)._removals()}


def entries_of(agent: Agent, pid: int) -> Counter[str]:
    """Return how many entries a process has in each table, by what the kernel counts."""
    found: Counter[str] = Counter()
    for (tgid, _), state in cuda_of(agent)._programs.states().items():
        if tgid == pid:
            found.update({table.name.lower(): state.used[table] for table in Table})
    return +found


def keys_of(agent: Agent, pid: int) -> Counter[str]:
    """Return how many entries a process really has in each table."""
    number = pid.to_bytes(4, "little")
    found: Counter[str] = Counter()
    for name, table in tables(agent).items():
        place = slice(4, 8) if name == "pinned" else slice(0, 4)
        if name != "threads":
            found[name] = sum(key[place] == number for key in table.each_key())
    return +found


def _number(point: Point) -> float:
    return point.value.sum if isinstance(point.value, Buckets) else point.value
