"""What does it cost to compile a library's unwinding table, to keep it, and to have it back from the cache?

Run: python -m bench.unwind_compile [--json] [FILE ...]   (without files: PyTorch's from the cache, else the biggest here)
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.results import Result, table
from otel_gpu.bpf.abi.unwinding import UNWIND_ROW
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.stacks.eh_frame.tables import compile_table
from otel_gpu.stacks.unwind.cache import TableCache, default_directory
from otel_gpu.stacks.unwind.table_work import FileFrames

MUST_ROWS_PER_S, MUST_BYTES_PER_ROW = 1e6, 10.0
ROUNDS = 3
_WANTED = ("libtorch_cpu.so", "libtorch_cuda.so", "libtorch_python.so")
_SMALLEST = 100_000
"""Rows below which a file says nothing about speed: fixed costs of a few ms dominate."""


@dataclass(frozen=True)
class Cost:
    path: str
    rows: int
    skipped: int
    cpu_s: float
    """Of the best round."""
    peak_bytes: int
    """How much the process grew at most."""
    load_ms: float


def measure(path: str) -> Cost:
    """Compile in this process, which must be fresh: memory is that of the whole process."""
    with ElfFile("/bin/sh") as elf:
        compile_table(elf)
    before = _peak()
    with ElfFile(path) as elf:
        best = float("inf")
        for _ in range(ROUNDS):
            started = time.process_time()
            rows = compile_table(elf)
            best = min(best, time.process_time() - started)
        with tempfile.TemporaryDirectory() as folder:
            cache = TableCache(Path(folder))
            cache.store("table", FileFrames(rows.rows.tobytes(), rows.end_pc, rows.functions, dict(rows.skipped)))
            started = time.process_time()
            assert cache.load("table") is not None
            load = time.process_time() - started
    return Cost(
        path,
        int(rows.rows.size),
        sum(rows.skipped.values()),
        best,
        max(0, _peak() - before),
        1000 * load,
    )


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def find_files() -> list[str]:
    """Return PyTorch's libraries where the tests have cached them, else the biggest libraries of the machine."""
    root = default_directory().parent
    torch = [str(p) for name in _WANTED for p in root.glob(f"torch/**/torch/lib/{name}")]
    if torch:
        return torch
    libraries = [p for d in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64") for p in Path(d).glob("*.so*") if p.is_file()]
    return [str(p) for p in sorted({p.resolve() for p in libraries}, key=lambda p: -p.stat().st_size)[:3]]


def results(costs: list[Cost]) -> list[Result]:
    """Judge each file."""
    out = []
    for cost in costs:
        name = Path(cost.path).name
        judged = cost.rows >= _SMALLEST
        out += [
            Result(
                f"compile {name}",
                f"{cost.rows:,} rows in {cost.cpu_s:.2f} s",
                "",
                round(cost.rows / cost.cpu_s / 1e6, 2),
                " M rows/s",
                MUST_ROWS_PER_S / 1e6 if judged else None,
                at_least=True,
                note=f"peak memory {cost.peak_bytes / 1e6:.0f} MB above the start, {cost.skipped} records skipped",
            ),
            Result(
                f"table of {name}",
                f"{cost.rows * UNWIND_ROW.itemsize / 1e6:.1f} MB",
                "",
                float(UNWIND_ROW.itemsize),
                " B/row",
                MUST_BYTES_PER_ROW,
            ),
            Result(f"{name} from the cache", f"{cost.load_ms:.1f} ms", "", round(cost.load_ms, 1), " ms"),
        ]
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asdict(measure(options.one))))
        return 0
    costs = []
    for path in options.files or find_files():
        command = [sys.executable, "-m", "bench.unwind_compile", "--one", path]
        costs.append(Cost(**json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)))
    print(json.dumps([asdict(c) for c in costs], indent=1) if options.json else table(results(costs)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
