"""How are ranks of the stand-in for NCCL started, observed, and what is the truth of when they arrived?"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import ground
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program

STANDIN = ground.PROGRAMS.parent / "standins" / "nccl"


def build() -> Path:
    """Make the stand-in and its ranks, and return where they are."""
    if subprocess.run(["make", "-s", "-C", STANDIN], check=False).returncode:
        pytest.skip("the stand-in for NCCL cannot be built: apt-get install gcc make")
    return STANDIN / "build"


@contextmanager
def observed(
    directory: Path,
    pids: list[int],
    *,
    settings: dict[str, object] | None = None,
    wants_probes: str = "nccl",
    interval: str = "200ms",
) -> Iterator[Agent]:
    """Observe processes by an agent that writes to a directory, from when its probes are in place."""
    config = directory / "agent.json"
    config.write_text(
        json.dumps(
            {
                "receivers": {"nccl": settings or {}, "self": {}},
                "exporters": {"file": {"path": str(directory)}},
                "service": {"interval": interval},
            }
        )
    )
    arguments = ["--config", config, *(word for pid in pids for word in ("--pid", str(pid)))]
    with Agent(arguments, directory) as agent:
        agent.wait_watching()
        agent.wait_for(rf"attached \d\d probes to .*{wants_probes}")
        yield agent


def exported_of(
    command: Sequence[str | Path], directory: Path, environment: Mapping[str, str] | None = None
) -> tuple[Metrics, dict[str, object]]:
    """Observe the one phase of a program that calls NCCL; return what was exported of it, and what it says it did."""
    with Program(command, directory, environment) as program:
        program.ready()
        with observed(directory, [program.pid]) as agent:
            said = program.run_phase()
            agent.stop()
        program.go()
        assert program.wait() == 0, program.error_text
    return read_metrics(directory).of(program.pid), said


def fnv(data: bytes) -> str:
    """Return FNV-1a, of 64 bits, as the attribute shows it."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{value:016x}"


@dataclass(frozen=True)
class Job:
    """What ranks did."""

    pids: list[int]
    comm: str
    arrivals: list[list[int]]
    """By rank and collective, by the monotonic clock; 0 where it never arrived."""


class Ranks:
    """Ranks of the stand-in, under observation."""

    def __init__(self, directory: Path, ranks: int, collectives: int, *options: str, program: str = "ranks") -> None:
        self.directory = directory
        self.program = Program([build() / program, str(ranks), str(collectives), *options], directory)
        ready = self.program.event("ready")
        self.pids: list[int] = ready["pids"]
        self.comm = fnv(bytes(ready["id"]))

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *exception: object) -> None:
        self.program.__exit__(*exception)

    def make(self) -> None:
        """Let them make their communicators."""
        self.program.go()
        self.program.event("made")

    def meet(self) -> Job:
        """Let them meet at the collectives."""
        self.program.go()
        said = self.program.event("phase", timeout=300)
        return Job(self.pids, self.comm, said["arrivals"])

    def end(self) -> None:
        """Let them end."""
        self.program.go()
        assert self.program.wait() == 0, self.program.error_text
