"""What does it cost to learn a library's kernel names, and to have them back from the cache?

Run: python -m bench.names [FILE or DIRECTORY ...]

Without arguments: NVIDIA's cuBLAS, cuBLASLt and NCCL, and all libraries of PyTorch and of vLLM where those were installed
for the tests. A directory stands for all libraries with device code below it, one row for all. Needs no GPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.ground import ROOT, UnavailableError
from bench.results import Result, table, unmeasured
from otel_gpu.errors import ElfError
from otel_gpu.receivers.cuda.kernel_names.cache import SymbolCache
from otel_gpu.receivers.cuda.kernel_names.fatbin import FATBIN_SECTIONS
from otel_gpu.receivers.cuda.kernel_names.stub_map import StubMap
from otel_gpu.receivers.cuda.kernel_names.stub_work import stub_map
from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.sandbox.work import OpenFile
from otel_gpu.stacks.demangle.names import shorten

MUST_COLD_S, MUST_CACHED_MS = 1.0, 50.0
JUDGED = "libcublas.so.12"
MUST_ALL_S = 8.0
"""CPU for everything that a PyTorch or vLLM process has mapped and more."""
_KILOBYTE = 1 << 10


@dataclass(frozen=True, slots=True)
class Cost:
    """What one library took; times of the best round."""

    stubs: int
    kernels: int
    handles: int
    skipped: int
    cold_s: float
    """CPU: to hash what it is read from, and to read that."""
    cached_ms: float
    shorten_us: float
    peak_bytes: int
    """Of the process, which also has Python and what it imports: `own_bytes`."""
    own_bytes: int


def measure(rounds: int) -> Iterator[Result]:
    """Yield the rows for NVIDIA's libraries, and for all libraries of PyTorch and vLLM."""
    yield from _rows(sorted(libraries().glob("lib*.so.*")), rounds)
    for name in ("torch", "vllm"):
        try:
            yield from _rows([_packages(name)], rounds)
        except UnavailableError as error:
            yield unmeasured(f"kernel names, all libraries of {name}", str(error))


def libraries() -> Path:
    """Return the directory of NVIDIA's libraries."""
    return _ground("libraries.sh")


def _packages(name: str) -> Path:
    """Return where the Python packages of what a script of tests/ground installs lie."""
    return next((_ground(f"{name}.sh").parent.parent / "lib").glob("python3*/site-packages"))


def _ground(script: str) -> Path:
    done = subprocess.run([ROOT / "tests/ground" / script], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(done.stderr.strip())
    return Path(done.stdout.strip())


def _rows(places: Iterable[Path], rounds: int) -> Iterator[Result]:
    for place in places:
        if place.is_dir():
            yield from _rows_of_all(place, rounds)
        else:
            yield from _rows_of_one(place, rounds)


def _rows_of_one(file: Path, rounds: int) -> Iterator[Result]:
    cost = _measured(file, rounds)
    must_cold, must_cached = (MUST_COLD_S, MUST_CACHED_MS) if file.name == JUDGED else (None, None)
    what = f"kernel names, {file.name} ({file.stat().st_size >> 20} MiB)"
    yield Result(f"{what}: cold", _said(cost), "", cost.cold_s, "s CPU", must_cold)
    yield Result(f"{what}: cached", "", "", cost.cached_ms, "ms", must_cached)
    yield Result(f"{what}: shorten one", "", "", cost.shorten_us, "µs")


def _rows_of_all(directory: Path, rounds: int) -> Iterator[Result]:
    files = [file for file in sorted(directory.rglob("*.so*")) if file.is_file() and _has_device_code(file)]
    if not files:
        raise UnavailableError(f"{directory}: no library with device code")
    costs = [_measured(file, rounds) for file in files]
    total = Cost(
        *(sum(getattr(cost, name) for cost in costs) for name in Cost.__slots__[:6]),
        *(max(getattr(cost, name) for cost in costs) for name in Cost.__slots__[6:]),
    )
    slowest = max(zip(costs, files), key=lambda pair: pair[0].cold_s)
    name = next((part for part in reversed(directory.parts) if part in {"torch", "vllm"}), directory.name)
    what = f"kernel names, all {len(files)} libraries of {name}"
    note = f"slowest: {slowest[1].name}, {slowest[0].cold_s:.2f} s"
    yield Result(f"{what}: cold", _said(total), "", total.cold_s, "s CPU", MUST_ALL_S, note=note)
    yield Result(f"{what}: cached", "", "", total.cached_ms, "ms")


def _said(cost: Cost) -> str:
    more = (cost.peak_bytes - cost.own_bytes) >> 20
    found = f"{cost.stubs} stubs, {cost.kernels} kernels, {cost.handles} handles"
    return f"{found}, {cost.skipped} skipped; {more} MiB peak above Python's {cost.own_bytes >> 20}"


def _has_device_code(file: Path) -> bool:
    try:
        with ElfFile(file) as elf:
            return any(elf.section(name) is not None for name in FATBIN_SECTIONS)
    except (ElfError, OSError):
        return False


def _measured(file: Path, rounds: int) -> Cost:
    # In a process of its own, so that the peak of memory is this library's.
    command = [sys.executable, "-m", "bench.names", "--one", str(rounds), str(file)]
    return Cost(**json.loads(subprocess.check_output(command, cwd=ROOT)))


def _cost(file: Path, rounds: int) -> Cost:
    with tempfile.TemporaryDirectory() as directory, _opened(file) as library, _opened(Path(sys.executable)) as small:
        cache = SymbolCache(Path(directory))
        for found in stub_map.function([small], frozenset()):  # loads what reading needs, as a child has it
            cache.write(found.name, "empty", StubMap())
        own = _memory("VmRSS")
        cold_s = _best(lambda: list(stub_map.function([library], frozenset())), rounds, time.process_time)
        peak = _memory("VmHWM")
        *_, found = stub_map.function([library], frozenset())
        cache.write(found.name, "stubs", found.stubs)
        cached_s = _best(lambda: cache.read(found.name, "stubs", StubMap), rounds, time.perf_counter)
        kept = cache.read(found.name, "stubs", StubMap)
        assert kept is not None
    names = set(kept.names)
    started = time.perf_counter()
    for name in names:
        shorten(name)
    shorten_us = (time.perf_counter() - started) / max(len(names), 1) * 1e6
    counts = len(kept), len(names), len(kept.handle_variables), kept.skipped
    return Cost(*counts, cold_s, cached_s * 1e3, shorten_us, peak, own)


@contextmanager
def _opened(path: Path) -> Iterator[OpenFile]:
    with path.open("rb", 0) as file:
        yield OpenFile(file.fileno(), None, path.stat().st_size, str(path))


def _best(work: Callable[[], object], rounds: int, clock: Callable[[], float]) -> float:
    times = []
    for _ in range(rounds):
        started = clock()
        work()
        times.append(clock() - started)
    return min(times)


def _memory(field: str) -> int:
    # Not getrusage: a child inherits its parent's peak.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * _KILOBYTE for line in lines if line.startswith(field))


def main(arguments: list[str]) -> int:
    """Print the table; with `--one ROUNDS FILE`, one library's costs as JSON."""
    if arguments[:1] == ["--one"]:
        print(json.dumps(asdict(_cost(Path(arguments[2]), int(arguments[1])))))
        return 0
    try:
        rows = list(_rows(map(Path, arguments), 3)) if arguments else list(measure(3))
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
