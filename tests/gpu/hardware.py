"""Is there a real NVIDIA GPU, and what is it? Asked of the driver in a process of its own, so that the asking holds no context."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass

_DEADLINE_S = 120
_ASK = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
count, version, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
code = cuda.cuInit(0)
if code: raise SystemExit(f"cuInit returned {code}")
code = cuda.cuDeviceGetCount(ctypes.byref(count))
if code or count.value < 1: raise SystemExit(f"cuDeviceGetCount returned {code}, {count.value} devices")
cuda.cuDeviceGetName(name, 256, 0)
path = next(l.split(maxsplit=5)[5].strip() for l in open("/proc/self/maps") if "/libcuda.so" in l)
driver = ctypes.create_string_buffer(96)
try:
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    if nvml.nvmlInit_v2() == 0: nvml.nvmlSystemGetDriverVersion(driver, 96)
except OSError:
    pass
print(json.dumps({"gpu": name.value.decode(), "driver": driver.value.decode(), "path": path}))
"""


@dataclass(frozen=True, slots=True)
class Gpu:
    """The first device of this machine."""

    name: str
    driver: str
    """The driver's version, where NVML tells it."""
    path: str
    """The file of libcuda."""


@functools.cache
def look() -> Gpu | str:
    """Return the GPU, or why there is none that these checks are for."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK], capture_output=True, text=True, check=False, timeout=_DEADLINE_S
        )
    except subprocess.TimeoutExpired:
        return f"needs a real GPU: the driver did not answer within {_DEADLINE_S} s"
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        return f"needs a real GPU: {said[-1] if said else 'the driver does not load'}"
    found = json.loads(done.stdout)
    if any("mock" in found[field].lower() for field in ("gpu", "driver")):
        return "needs a real GPU: this driver is the mock one"
    return Gpu(found["gpu"], found["driver"], found["path"])


def missing(*modules: str) -> str | None:
    """Say which module this interpreter lacks, or None."""
    lacking = [name for name in modules if importlib.util.find_spec(name) is None]
    return f"{sys.executable} has no {' and no '.join(lacking)}" if lacking else None
