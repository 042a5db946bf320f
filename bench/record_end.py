"""How long after its duration does a recording end? `otel-gpu record --duration 3` on a program that launches, warm."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.ground import ROOT, UnavailableError, part
from bench.results import Result

_DURATION_S = 3.0
_DEADLINE_S = 120.0
_MUST_S = 1.0
_PROGRAM = """
import ctypes, sys, time
sys.path.insert(0, sys.argv[1])
from ctypes_calls import IMAGE, Driver
driver, context, module, function = Driver(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
driver.cuInit(0)
driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
driver.cuModuleLoadData(ctypes.byref(module), IMAGE)
driver.cuModuleGetFunction(ctypes.byref(function), module, b"attend")
one = ctypes.c_uint(1)
print("ready", flush=True)
while True:
    driver.cuLaunchKernel(function, one, one, one, one, one, one, ctypes.c_uint(0), None, None, None)
    time.sleep(0.001)
"""


def measure(rounds: int) -> Iterator[Result]:
    """Record so often, once more before for the caches, and time each from when it says that it records."""
    libraries = os.pathsep.join(filter(None, [str(part("mock")), os.environ.get("LD_LIBRARY_PATH", "")]))
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, ROOT / "tests" / "programs"],
        env={**os.environ, "LD_LIBRARY_PATH": libraries, "MOCKCUDA_STATE": "", "MOCKCUDA_TRUTH": ""},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout is not None
        if program.stdout.readline() != "ready\n":
            raise UnavailableError("the program does not start on the mock driver")
        with tempfile.TemporaryDirectory() as directory:
            _, *later = [_record(program.pid, Path(directory) / "a.html") for _ in range(rounds + 1)]
    finally:
        program.kill()
        program.communicate()
    yield Result(
        f"end of record after its {_DURATION_S:g} s, warm",
        f"{min(later):.2f} s",
        f"{statistics.median(later):.2f} s median",
        min(later),
        "s",
        must=_MUST_S,
        note="until the command has returned, with its flame graph written",
    )


def _record(pid: int, out: Path) -> float:
    """Return how much longer than asked one recording took, from when it began."""
    if (command := shutil.which("otel-gpu", path=str(Path(sys.executable).parent))) is None:
        raise UnavailableError("the command is not installed: run `make setup`")
    record = subprocess.Popen(
        [command, "record", str(pid), "--duration", str(_DURATION_S), "-o", out], stderr=subprocess.PIPE, text=True
    )
    assert record.stderr is not None
    began = 0.0
    said: list[str] = []
    for line in record.stderr:
        if not began and line.startswith("recording "):
            began = time.monotonic()
        said.append(line)
    if record.wait(_DEADLINE_S) or not began:
        raise UnavailableError(f"the recording failed: {''.join(said)}")
    return time.monotonic() - began - _DURATION_S
