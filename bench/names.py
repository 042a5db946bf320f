"""What does it cost to learn a library's kernel names, and to have them back from the cache?

Run: python -m bench.names [FILE ...]   (without files: NVIDIA's cuBLAS, cuBLASLt and NCCL)
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.ground import ROOT, UnavailableError
from bench.results import Result, table
from otel_gpu.elf import ElfFile
from otel_gpu.symbols.cache import SymbolCache
from otel_gpu.symbols.demangle import shorten
from otel_gpu.symbols.stubs import StubMap, read_stub_map

MUST_COLD_S, MUST_CACHED_MS = 3.0, 50.0
JUDGED = "libcublas.so.12"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one library took; times of the best round."""

    stubs: int
    kernels: int
    cold_s: float
    cached_ms: float
    shorten_us: float
    peak_bytes: int


def measure(rounds: int) -> Iterator[Result]:
    """Yield the rows for NVIDIA's libraries."""
    yield from _rows(sorted(libraries().glob("lib*.so.*")), rounds)


def libraries() -> Path:
    """Return the directory of NVIDIA's libraries."""
    done = subprocess.run([ROOT / "tests/ground/libraries.sh"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(done.stderr.strip())
    return Path(done.stdout.strip())


def _rows(files: list[Path], rounds: int) -> Iterator[Result]:
    for file in files:
        # In a process of its own, so that the peak of memory is this library's.
        command = [sys.executable, "-m", "bench.names", "--one", str(rounds), str(file)]
        cost = Cost(**json.loads(subprocess.check_output(command, cwd=ROOT)))
        must_cold, must_cached = (MUST_COLD_S, MUST_CACHED_MS) if file.name == JUDGED else (None, None)
        what = f"kernel names, {file.name} ({file.stat().st_size >> 20} MiB)"
        ours = f"{cost.stubs} stubs, {cost.kernels} kernels, {cost.peak_bytes >> 20} MiB peak"
        yield Result(f"{what}: cold", ours, "", cost.cold_s, "s", must_cold)
        yield Result(f"{what}: cached", "", "", cost.cached_ms, "ms", must_cached)
        yield Result(f"{what}: shorten one", "", "", cost.shorten_us, "µs")


def _cost(file: Path, rounds: int) -> Cost:
    with tempfile.TemporaryDirectory() as directory, ElfFile(file) as elf:
        cache = SymbolCache(Path(directory))
        cold_s = _best(lambda: read_stub_map(elf), rounds)
        peak = _peak_bytes()
        cache.write(elf, "stubs", read_stub_map(elf))
        cached_s = _best(lambda: cache.read(elf, "stubs", StubMap), rounds)
        kept = cache.read(elf, "stubs", StubMap)
    if kept is None:
        raise UnavailableError(f"{file}: has no build id, so it is not cached")
    names = set(kept.names)
    started = time.perf_counter()
    for name in names:
        shorten(name)
    shorten_us = (time.perf_counter() - started) / max(len(names), 1) * 1e6
    return Cost(len(kept), len(names), cold_s, cached_s * 1e3, shorten_us, peak)


def _best(work: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def _peak_bytes() -> int:
    # Not getrusage: a child inherits its parent's peak.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def main(arguments: list[str]) -> int:
    """Print the table; with `--one ROUNDS FILE`, one library's costs as JSON."""
    if arguments[:1] == ["--one"]:
        print(json.dumps(asdict(_cost(Path(arguments[2]), int(arguments[1])))))
        return 0
    try:
        files = [Path(a) for a in arguments] or sorted(libraries().glob("lib*.so.*"))
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    print(table(list(_rows(files, 3))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
