"""What does it cost to have the kernel take the agent's programs? It looks at every instruction of every path.

Run: python -m bench.start [--json]   (needs root)

For each receiver, with `cuda`, and for all: the seconds until the agent has started, its CPU time until then, how many BPF programs it
loaded, and how many instructions the verifier looked at, as `/proc/self/fdinfo` says.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from otel_gpu.config.model import Config
from otel_gpu.config.settings import Discovery, Pipeline
from otel_gpu.exporters.file.settings import FileSettings
from otel_gpu.receivers.cuda.settings import CudaSettings
from otel_gpu.receivers.inference.settings import InferenceSettings
from otel_gpu.receivers.nccl.settings import NcclSettings
from otel_gpu.receivers.profiles.settings import ProfileName, ProfileSettings
from otel_gpu.receivers.rdma.settings import RdmaSettings
from otel_gpu.service.agent import Agent

_SETTINGS = {
    "nccl": ("metrics", NcclSettings()),
    "rdma": ("metrics", RdmaSettings()),
    "profile": ("profiles", ProfileSettings(types=get_args(ProfileName))),
    "inference": ("traces", InferenceSettings()),
}
_ROUNDS = 3


@dataclass(frozen=True)
class Start:
    receivers: str
    wall_s: float
    """Of the best round, as is the next."""
    cpu_s: float
    programs: int
    instructions: int


def measure(receivers: tuple[str, ...], directory: Path) -> Start:
    """Start an agent some times, and say what it took."""
    rounds = [_start(_config(receivers, directory)) for _ in range(_ROUNDS)]
    wall_s, cpu_s, programs, instructions = min(rounds)
    return Start(" ".join(("cuda", *receivers)), wall_s, cpu_s, programs, instructions)


def _config(receivers: tuple[str, ...], directory: Path) -> Config:
    pipelines = {"metrics": Pipeline(("cuda",), (), ("file",))}
    for name in receivers:
        signal, _ = _SETTINGS[name]
        before = pipelines[signal].receivers if signal in pipelines else ()
        pipelines[signal] = Pipeline((*before, name), (), ("file",))
    settings = {name: _SETTINGS[name][1] for name in receivers}
    return Config(
        receivers={"cuda": CudaSettings(), **settings},
        exporters={"file": FileSettings(str(directory / "out"))},
        pipelines=pipelines,
        discovery=Discovery(pids=(os.getpid(),)),
    )


def _start(config: Config) -> tuple[float, float, int, int]:
    began, cpu_s = time.monotonic(), _cpu_s()
    with Agent(config):
        took = time.monotonic() - began, _cpu_s() - cpu_s
        verified = list(_verified())
    return *took, len(verified), sum(verified)


def _verified() -> list[int]:
    """Return how many instructions the verifier looked at, of each BPF program that this process has open."""
    found = {}
    for entry in Path("/proc/self/fdinfo").iterdir():
        try:
            text = entry.read_text()
        except OSError:
            continue  # closed meanwhile
        program, count = (
            re.search(r"^prog_id:\s+(\d+)", text, re.MULTILINE),
            re.search(r"^verified_insns:\s+(\d+)", text, re.MULTILINE),
        )
        if program and count:
            found[program[1]] = int(count[1])
    return list(found.values())


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    if os.geteuid():
        print("BPF programs are loaded as root: run it as root", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as directory:
        sets = ((), *((name,) for name in _SETTINGS), tuple(_SETTINGS))
        found = [measure(receivers, Path(directory)) for receivers in sets]
    if as_json:
        print(json.dumps([asdict(start) for start in found]))
        return 0
    print(f"{'receivers':<36}{'start (s)':>10}{'CPU (s)':>10}{'programs':>10}{'instructions':>14}")
    for start in found:
        print(
            f"{start.receivers:<36}{start.wall_s:>10.2f}{start.cpu_s:>10.2f}{start.programs:>10}{start.instructions:>14,}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
