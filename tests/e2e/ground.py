"""Where are the real parts that tests stand on? Asked of tests/ground/, which makes them; a test skips with its reason."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent.parent
PROGRAMS = _TESTS / "programs"


@functools.cache
def _ask(script: str, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run([_TESTS / "ground" / script, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def _path(script: str, *arguments: str) -> Path:
    code, out, reason = _ask(script, *arguments)
    if code == 77:
        pytest.skip(reason)
    if code != 0:
        pytest.fail(f"{script} {' '.join(arguments)}: exit status {code}: {reason}")
    return Path(out.split("\t")[-1])


def part(name: str) -> Path:
    """Return the path of a part of tests/ground/setup.sh, made when it is not there."""
    return _path("setup.sh", name)


def kernel_with_modules(suite: str) -> Path:
    """Return the kernel of a suite of Debian's that has RDMA."""
    return _path("kernels.sh", "--modules", suite)


def nccl(version: str) -> Path:
    """Return NVIDIA's libnccl.so.2 of a version."""
    return _path("nccl.sh", version)


def torch_python() -> Path:
    """Return the interpreter that has PyTorch."""
    return _path("torch.sh")


def vllm_python() -> Path:
    """Return the interpreter that has vLLM."""
    return _path("vllm.sh")


def zoo_python(name: str) -> Path:
    """Return the interpreter that has a program of the zoo."""
    return _path("zoo.sh", name)


@contextmanager
def compiling_with_vllm() -> Iterator[Path]:
    """Hold the directory in which vLLM keeps what it compiles: that takes minutes, and is done once."""
    directory = vllm_python().parents[2] / "compiled"
    directory.mkdir(exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory


def vllm_environment() -> dict[str, str]:
    """Return what a program that runs vLLM on the mock driver has in its environment."""
    mock = str(part("mock"))
    return {
        # vLLM brings its own runtime, which the test's library path must not replace.
        "LD_LIBRARY_PATH": mock,
        "LIBRARY_PATH": mock,
        "TRITON_LIBCUDA_PATH": mock,
        "MOCKCUDA_MEM_MB": "2048",
        # Sampled tokens are read back as 0, and small tensors of ones are ones: else it generates for ever.
        "MOCKCUDA_DTOH_ZERO": "65536",
        "MOCKCUDA_FILL": "1",
    }


def packages(name: str) -> Path:
    """Return where the Python packages lie that `torch.sh` or `vllm.sh` installed."""
    return next((_path(f"{name}.sh").parent.parent / "lib").glob("python3*/site-packages"))


def library_path() -> str:
    """Return an LD_LIBRARY_PATH with the mock driver, and the real runtimes where they can be had."""
    paths = [str(part("mock"))]
    for name, below in (("cuda13", "lib"), ("cuda12", "cuda_runtime/lib")):
        code, out, _ = _ask("setup.sh", name)
        if code == 0:
            paths.append(f"{out.split(chr(9))[-1]}/{below}")
    return ":".join(paths)


def own_driver(directory: Path) -> Path:
    """Make a directory with a copy of the mock driver, which nobody has probed, and return it."""
    directory.mkdir()
    shutil.copy(part("mock") / "libcuda.so.1", directory)
    return directory


def another_driver(directory: Path) -> Path:
    """Make the same with a driver of which nothing is known from programs that use the mock driver's like."""
    with (own_driver(directory) / "libcuda.so.1").open("ab") as file:
        file.write(os.urandom(16))
    return directory


def greenlet(minor: int) -> Path:
    """Return the directory of the greenlet package for a CPython."""
    return _path("greenlet.sh", str(minor))


def ros2_python() -> Path:
    """Return the CPython that has rclpy."""
    return _path("ros2.sh")


def libraries() -> Path:
    """Return the directory of NVIDIA's cuBLAS and NCCL."""
    return _path("libraries.sh")


def hip() -> Path:
    """Return the directory of AMD's HIP runtime and its headers."""
    return _path("hip.sh")


def promtool() -> Path:
    """Return Prometheus' tool that checks rules."""
    return _path("prometheus.sh") / "root" / "usr" / "bin" / "promtool"


def prometheus() -> Path:
    """Return Prometheus."""
    return _path("prometheus.sh") / "root" / "usr" / "bin" / "prometheus"


def prometheus3() -> Path:
    """Return a Prometheus that keeps native histograms."""
    return _path("prometheus3.sh") / "prometheus"


def prometheus3_or_none() -> Path | None:
    """Return the same, or nothing where it cannot be had."""
    return prometheus3() if _ask("prometheus3.sh")[0] == 0 else None


def kubernetes() -> Path:
    """Return where an API server, etcd, helm and kwok lie."""
    return _path("kubernetes.sh")


def verbs() -> Path:
    """Return the directory of libibverbs, its headers and its providers."""
    return _path("verbs.sh")
