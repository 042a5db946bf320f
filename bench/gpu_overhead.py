"""What does observation cost a program on a real GPU? A training loop, and one bound by its launches, with and without agents.

Run: python -m bench.gpu_overhead [--rounds N] [--seconds S]   (root, a GPU and PyTorch; not among those that bench/run.py runs)
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from bench.results import Result, table
from otel_gpu import Agent, Config
from tests.gpu.hardware import Gpu, look, missing

WARM_S, SETTLES_S = 1.0, 2.0
"""Before each measurement: the first launches under an agent make it read libraries, which is not what a launch costs."""
TABLES_S = 120.0
"""How long agents with profiles get, once, to make the unwinding tables of PyTorch's libraries; they are kept."""
VARIANTS = ("unobserved", "metrics", "metrics+profiles")
LOOPS = {"training": "iterations of a transformer layer", "launches": "additions of 1,024 numbers"}
_LOOP = """
import json, sys, time
import torch
from torch import nn

def training():
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, device="cuda")
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-4)
    batch = torch.randn(16, 256, 512, device="cuda")
    def step():
        optimizer.zero_grad(set_to_none=True)
        layer(batch).pow(2).mean().backward()
        optimizer.step()
    return step, 5

def launches():
    values = torch.zeros(1024, device="cuda")
    return (lambda: values.add_(1.0)), 1000

step, chunk = {"training": training, "launches": launches}[sys.argv[1]]()
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    torch.cuda.synchronize()
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < float(line):
        for _ in range(chunk):
            step()
        torch.cuda.synchronize()
        done += chunk
    print(json.dumps({"us": (time.perf_counter() - began) / done * 1e6}), flush=True)
"""


class Loop:
    """One living program, which loops for as long as it is told to. A context manager."""

    def __init__(self, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LOOP, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def __enter__(self) -> Loop:
        self._read()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, seconds: float) -> float:
        """Let it loop and return the microseconds of one iteration."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return float(self._read()["us"])

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the measured program ended with {self._process.wait()}")
        said: dict[str, float] = json.loads(line)
        return said


@contextmanager
def _observed(variant: str, gpu: Gpu, pid: int, directory: Path) -> Iterator[None]:
    """Observe the program as a variant says. The agent works in this process, as it does as a library."""
    if variant == "unobserved":
        yield
        return
    config = directory / "agent.yaml"
    config.write_text(json.dumps({"receivers": {"cuda": {"libraries": [gpu.path]}, "nvml": {}, "self": {}}}))
    profiles = variant == "metrics+profiles"
    output = f"file:{directory / variant}"
    with Agent(Config.load(config, environ={}, pids=(pid,), output=output, profiles=profiles)):
        yield


def measure(gpu: Gpu, rounds: int, seconds: float) -> Iterator[Result]:
    """Give every variant its turn in every round, another one first each time."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for loop, what in LOOPS.items():
            with Loop(loop) as program:
                program.run(WARM_S)
                with _observed(VARIANTS[-1], gpu, program.pid, directory):
                    program.run(TABLES_S if loop == "training" else WARM_S)
                took: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
                for i in range(rounds):
                    for variant in (*VARIANTS[i % 3 :], *VARIANTS[: i % 3]):
                        with _observed(variant, gpu, program.pid, directory):
                            program.run(WARM_S)
                            time.sleep(SETTLES_S)
                            took[variant].append(program.run(seconds))
            base = took["unobserved"]
            for variant in VARIANTS[1:]:
                ratios = sorted(ours / theirs for ours, theirs in zip(took[variant], base))
                yield Result(
                    f"{loop}: {what}, {variant}",
                    f"{statistics.median(took[variant]):.2f} µs",
                    f"{statistics.median(base):.2f} µs",
                    statistics.median(ratios),
                    note=f"ratios of {rounds} rounds: {ratios[0]:.3f} to {ratios[-1]:.3f}",
                )


def main() -> int:
    """Print the table, or why there is none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each variant runs in a round")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: probes can be placed by root only", file=sys.stderr)
        return 0
    gpu = look()
    why = gpu if isinstance(gpu, str) else missing("torch")
    if why or isinstance(gpu, str):
        print(f"skipped: {why}", file=sys.stderr)
        return 0
    print(f"{gpu.name}, driver {gpu.driver}, {os.cpu_count()} CPUs\n")
    print(table(list(measure(gpu, options.rounds, options.seconds))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
