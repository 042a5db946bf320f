"""On which CUDA driver can the demo run? A real one with a GPU, or in a checkout the mock one that the tests use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

from ...errors import OtelGpuError
from ...signals.structs import Frozen

_CHECKOUT = Path(__file__).parents[3]
_MOCK = _CHECKOUT / "tests" / "standins" / "cuda"
_TIMEOUT_S = 60
SERVER = "otel_gpu.cli.demo.inference"

# Asked of a process of its own: a driver that is initialised stays so, and may hang where a GPU is ill.
_QUESTION = """
import ctypes, re
count = ctypes.c_int()
cuda = ctypes.CDLL("libcuda.so.1")
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value:
    print(re.search(r"(/.*libcuda\\.so\\S*)", open("/proc/self/maps").read())[1])
"""
_MOCK_TIMES = {
    "MOCKCUDA_KERNEL_NS": "6000",
    "MOCKCUDA_KERNEL_RULES": "flash_attention=80000,paged_attention=25000,mlp=20000,qkv_projection=15000,backward=60000,adam=9000",
    "MOCKCUDA_COPY_GBPS": "12",
    "MOCKCUDA_STATE": "",
}
"""How long the mock driver says that kernels and copies take: as on a GPU of the better kind, about."""


class DemoDriver(Frozen):
    """A driver, and the programs that fit it."""

    library: str
    """The driver's file, to attach to before the program loads it."""
    real: bool
    modules: tuple[str, ...]
    """The observed programs: a server, whose clients the demo starts, and one that trains."""
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)


def find() -> DemoDriver:
    """Return what the demo can run on; OtelGpuError where there is nothing."""
    library = _real_driver()
    if library is not None:
        second = "inference_torch" if find_spec("torch") is not None else "training"
        return DemoDriver(library, real=True, modules=(SERVER, f"otel_gpu.cli.demo.{second}"))
    if not _MOCK.is_dir():
        raise OtelGpuError(
            "no GPU answers here, and the mock driver that stands in for one is part of the source tree only; "
            "run the demo on a host with an NVIDIA GPU, or `make demo` in a checkout"
        )
    mock = _MOCK / "libcuda.so.1"
    if not mock.exists():
        raise OtelGpuError("no GPU answers here, and the mock driver is not built yet; build it with `make demo`")
    return DemoDriver(
        str(mock),
        real=False,
        modules=(SERVER, "otel_gpu.cli.demo.training"),
        environment={"LD_LIBRARY_PATH": str(_MOCK), **_MOCK_TIMES},
    )


def _real_driver() -> str | None:
    """Return the file of a driver that has a GPU."""
    try:
        asked = subprocess.run(
            [sys.executable, "-I", "-c", _QUESTION],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    path = asked.stdout.strip()
    return path if asked.returncode == 0 and path else None
