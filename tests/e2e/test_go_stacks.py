"""Is a stack from C back into Go whole, though Go writes no unwinding tables and has stacks of its own?"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import GPU_LAUNCHES, is_truncated
from tests.e2e import ground
from tests.e2e.processes import Program
from tests.e2e.stack_truth import captured


def _go() -> str:
    fetched = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "otel-gpu" / "go" / "venv" / "bin" / "go"
    found = shutil.which("go") or (str(fetched) if fetched.exists() else None)
    if found is None or shutil.which("cc") is None:
        pytest.skip("needs Go and a C compiler")
    return found


def _build(directory: Path) -> Path:
    program = directory / "go_launch"
    environment = {**os.environ, "CGO_ENABLED": "1", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        [_go(), "build", "-o", program, "."],
        cwd=ground.PROGRAMS / "go_launch",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"go cannot build: {done.stderr.strip().splitlines()[:1]}")
    return program


def test_a_launch_through_cgo_hangs_below_gos_functions(tmp_path: Path) -> None:
    with Program([_build(tmp_path)], tmp_path) as program:
        program.ready()
        with Recording(program.pid, (GPU_LAUNCHES,)) as recorder:
            assert recorder.settle()
            recorder.start()
            program.run_phase()
            stacks = captured(recorder.finish())

    assert stacks.keys() == {"in_main", "in_goroutine"}
    for kernel, outermost in (("in_main", ["main.main"]), ("in_goroutine", ["main.inGoroutine", "main.main.func1"])):
        assert not is_truncated(stacks[kernel]), stacks[kernel]
        names = [f.function for f in stacks[kernel]]
        assert names[:2] == ["cuLaunchKernel", "launch_in_c"]
        own = [n for n in names if n.startswith("main.") and "_Cfunc_" not in n and ".inner.func" not in n]
        assert own == ["main.inner", "main.outer", *outermost], names
