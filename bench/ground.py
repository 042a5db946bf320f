"""What do the benchmarks stand on? Measured programs and rival BPF programs, built into build/bench."""

from __future__ import annotations

import atexit
import functools
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "bench"
_HERE = ROOT / "bench"
_SKIP = 77


class UnavailableError(Exception):
    """Something cannot be had, or measured, here or this time; the message says why."""


@functools.cache
def part(name: str) -> Path:
    """Return the path of a part of tests/ground/setup.sh, made when it is not there."""
    script = ROOT / "tests" / "ground" / "setup.sh"
    done = subprocess.run([script, name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(done.stderr.strip() or f"{script.name} {name}: exit status {done.returncode}")
    return Path(done.stdout.strip().split("\t")[-1])


@functools.cache
def mock_driver() -> Path:
    """Return a directory with this process's own copy of the mock driver; the copy goes when the process ends.

    Probes belong to a file's inode: in a copy no other agent's probes add to what is measured, unless it watches every process.
    Two processes that shared a path would exchange the file under each other: the one that looks the path up after the other has
    replaced the file watches a file that its own programs do not map.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="driver-", dir=BUILD))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    shutil.copy(part("mock") / "libcuda.so.1", directory)
    directory.chmod(0o755)
    return directory


@functools.cache
def real_driver() -> Path:
    """Return the directory of NVIDIA's own driver, unpacked; it has prologues but, without a GPU, no devices."""
    return part("driver").parent


@functools.cache
def driver_program() -> Path:
    """Return the program on the driver API."""
    return _built(
        "calls", "calls.c", "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", "{out}", "{in}", "-ldl", "-lpthread"
    )


@functools.cache
def messages_program() -> Path:
    """Return the program that sends itself messages."""
    return _built("messages", "messages.c", "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", "{out}", "{in}")


@functools.cache
def deep_helper() -> Path:
    """Return the library of the program with deep stacks."""
    return _built("deep.so", "deep.c", "gcc", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", "{out}", "{in}")


@functools.cache
def runtime_program() -> Path:
    """Return the program made by nvcc, on the shared runtime."""
    cuda = part("cuda13")
    return _built(
        "launches",
        "launches.cu",
        str(cuda / "bin" / "nvcc"),
        "-arch=sm_90",
        "-Wno-deprecated-gpu-targets",
        "-cudart",
        "shared",
        f"-I{cuda}/include",
        f"-I{cuda}/include/cccl",
        f"-L{cuda}/lib",
        "-o",
        "{out}",
        "{in}",
    )


def runtime_libraries() -> Path:
    """Return the directory of NVIDIA's runtime, version 13."""
    return part("cuda13") / "lib"


@functools.cache
def rivals() -> Path:
    """Return the rival BPF programs' object, without the suffix that names the architecture."""
    machine = platform.machine()
    clang = next((c for c in ("clang-14", "clang") if shutil.which(c)), None)
    if clang is None:
        raise UnavailableError("no clang: run `make setup`")
    target = {"x86_64": "x86", "aarch64": "arm64"}[machine]
    flags = ("-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", f"-D__TARGET_ARCH_{target}", f"-I{ROOT}/ebpf")
    _built(f"rivals.{machine}.bpf.o", "rivals.bpf.c", clang, *flags, "-c", "{in}", "-o", "{out}")
    return BUILD / "rivals"


def _built(name: str, source: str, *command: str) -> Path:
    """Return what a command makes of a source, made again when the source or rounds.h is newer."""
    made, of = BUILD / name, _HERE / source
    newest = max(of.stat().st_mtime, (_HERE / "rounds.h").stat().st_mtime)
    if made.exists() and made.stat().st_mtime >= newest:
        return made
    BUILD.mkdir(parents=True, exist_ok=True)
    words = [word.format_map({"in": of, "out": made}) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"{source} cannot be built: {done.stderr.strip()[-500:]}")
    return made
