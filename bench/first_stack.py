"""How soon is the first whole stack there? `otel-gpu record` on a PyTorch program that trains, with an empty cache and a full one."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.ground import ROOT, UnavailableError, part
from bench.results import Result

_DEADLINE_S = 120.0
_STEPS = 1_000_000
_MUST_S = {"empty": 2.0, "full": 1.0}


@dataclass(frozen=True, slots=True)
class _First:
    """One recording of a second."""

    ready_s: float
    """From the command's start to the line that says that it records."""
    said: str
    """What it said when it had written the recording."""


def measure(rounds: int) -> Iterator[Result]:
    """Record a program that trains, in turns with a cache of its own that is empty, and with that which this left."""
    with _training() as pid, tempfile.TemporaryDirectory() as directory:
        found: dict[str, list[_First]] = {"empty": [], "full": []}
        for number in range(rounds):
            cache = Path(directory) / str(number)
            for kind in ("empty", "full"):
                found[kind].append(_record(pid, cache))
    for kind, firsts in found.items():
        best = min(firsts, key=lambda f: f.ready_s)
        yield Result(
            f"start of record to the first whole stack of a PyTorch program, {'cold' if kind == 'empty' else 'warm'}",
            f"{best.ready_s:.2f} s",
            f"{statistics.median(f.ready_s for f in firsts):.2f} s median",
            best.ready_s,
            "s",
            must=_MUST_S[kind],
            note=f"with {'an empty' if kind == 'empty' else 'a full'} cache; of one second recorded then: {best.said}",
        )


@contextmanager
def _training() -> Iterator[int]:
    python = _torch_python()
    mock = str(part("mock"))
    libraries = os.pathsep.join(filter(None, [mock, os.environ.get("LD_LIBRARY_PATH", "")]))
    program = subprocess.Popen(
        [python, ROOT / "tests" / "programs" / "torch_train.py", "--steps", str(_STEPS)],
        env={**os.environ, "LD_LIBRARY_PATH": libraries, "TRITON_LIBCUDA_PATH": mock},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert program.stdin is not None
        assert program.stdout is not None
        line = program.stdout.readline()
        if not line or json.loads(line)["event"] != "ready":
            raise UnavailableError("PyTorch does not start on the mock driver")
        program.stdin.write("\n")
        program.stdin.flush()
        yield program.pid
    finally:
        program.kill()
        program.communicate()


def _torch_python() -> str:
    done = subprocess.run([ROOT / "tests" / "ground" / "torch.sh"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(done.stderr.strip())
    return done.stdout.strip()


def _record(pid: int, cache: Path) -> _First:
    if (command := shutil.which("otel-gpu", path=str(Path(sys.executable).parent))) is None:
        raise UnavailableError("the command is not installed: run `make setup`")
    out = cache.with_suffix(".otlp.json")
    began = time.monotonic()
    record = subprocess.Popen(
        [command, "record", "--pid", str(pid), "--duration", "1", "--type", "launch", "-o", out],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert record.stderr is not None
    ready_s, said = 0.0, ""
    for line in record.stderr:
        if not ready_s and line.startswith("recording "):
            ready_s = time.monotonic() - began
        said = line.strip()
    if record.wait(_DEADLINE_S) or not ready_s:
        raise UnavailableError(f"the recording failed: {said}")
    return _First(ready_s, said.partition(": ")[2])
