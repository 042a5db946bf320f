"""How far apart are the bounds of a device's busy time? For batches of 5 µs to 5 ms, against the mock driver's clock."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from bench import ground
from bench.results import Result
from otel_gpu.discovery.drivers import libraries_at
from otel_gpu.discovery.processes import ProcessTable
from otel_gpu.receivers.cuda.busy import BusyReader
from otel_gpu.receivers.cuda.loading import CudaPrograms
from otel_gpu.receivers.cuda.receiver import CudaReceiver
from otel_gpu.sandbox.parsers import Parsers

_BATCHES = (
    ("5 µs", "takes_5us", 1),
    ("50 µs", "takes_5us", 10),
    ("500 µs", "takes_50us", 10),
    ("5 ms", "takes_5ms", 1),
)
_RULES = "takes_5us=5000,takes_50us=50000,takes_500us=500000,takes_5ms=5000000"
_BATCHES_A_ROUND = 20


def measure(rounds: int) -> Iterator[Result]:
    """Run batches, each waited for or asked for until it is done, 100 µs apart."""
    for what, kernel, count in _BATCHES:
        for how, options in (("waited for", []), ("polled", ["--poll"])):
            lower, truth, upper = _bounds([f"--batch={kernel}:{count}", *options], rounds * _BATCHES_A_ROUND)
            yield Result(
                f"upper - lower bound of busy time / true time, batches of {what} that are {how}",
                f"{lower / truth:.2f} to {upper / truth:.2f}",
                "1",
                (upper - lower) / truth,
                note="" if lower <= truth <= upper else "THE TRUTH IS NOT BETWEEN THEM",
            )


def _bounds(options: list[str], batches: int) -> tuple[int, int, int]:
    """Return nanoseconds: lower bound, truth, upper bound."""
    library = str((ground.mock_driver() / "libcuda.so.1").resolve())
    program = ground.part("programs") / "busy_mix"
    with (
        tempfile.TemporaryDirectory() as directory,
        Parsers() as parsers,
        closing(CudaReceiver(ProcessTable({}), parsers, CudaPrograms(map_entries=4096))) as ours,
    ):
        found = list(libraries_at(parsers, [library]))
        if not found or ours.attach(*found[0]) is None:
            raise ground.UnavailableError(f"no probes in {library}")
        truth = Path(directory) / "truth.json"
        process = subprocess.Popen(
            [program, *options, f"--rounds={batches}"],
            env={
                **os.environ,
                "LD_LIBRARY_PATH": str(Path(library).parent),
                "MOCKCUDA_TRUTH": str(truth),
                "MOCKCUDA_STATE": "",
                "MOCKCUDA_KERNEL_RULES": _RULES,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        process.communicate(b"\n", timeout=120)
        if process.returncode:
            raise ground.UnavailableError(f"{program.name} ended with {process.returncode}")
        grown = [d for d in BusyReader(ours._object.map("busy")).read(()) if d.program[0] == process.pid]
        true_ns = sum(json.loads(truth.read_text())["device_busy_ns"])
    return sum(d.lower_ns for d in grown), true_ns, sum(d.upper_ns for d in grown)
