"""Real programs on the mock driver: is every call and byte of theirs reported, under the right names, and are stacks whole?"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_gpu.exporters.recordings.reading import read_profiles
from otel_gpu.signals.profiles import is_truncated
from tests.e2e import comparison, ground, naming
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program
from tests.e2e.truth import Histogram, Truth
from tests.zoo import table

pytestmark = pytest.mark.timeout(600)
PROGRAMS = {
    "CuPy": "cupy",
    "numba-cuda": "numba",
    "Warp": "warp",
    "cuda.core": "cuda-core",
    "XGBoost": "xgboost",
    "tinygrad": "tinygrad",
    "RMM": "rmm",
    "CTranslate2": "ctranslate2",
    "ONNX Runtime": "onnxruntime",
}
_LIBRARIES = {"tinygrad": "cuda_nvrtc", "CTranslate2": "cublas"}
"""NVIDIA's wheel in which a program finds a library only where its loader is told of it."""
EVERY = pytest.mark.parametrize("name", PROGRAMS)
NAMED, WHOLE = 0.999, 0.99
_STARTS_S, _RUNS_S = 180, 240
_ROUNDS = {"cuda.core": "500000", "CTranslate2": "2500", "ONNX Runtime": "30000", "XGBoost": "800"}
"""Of a recorded command: enough for many seconds, since stacks of the first one are cut while files are read for the first time."""
_HERE = Path(__file__).parent


def _command(name: str, *options: str) -> list[str | Path]:
    part = PROGRAMS[name]
    return [ground.zoo_python(part), _HERE / "programs" / f"zoo_{part.replace('-', '_')}.py", *options]


def _environment(name: str, directory: Path) -> dict[str, str]:
    """Return what a program is given: the mock driver, and caches of its own for what it compiles."""
    paths = [ground.part("mock")]
    if wheel := _LIBRARIES.get(name):
        paths += (ground.zoo_python(PROGRAMS[name]).parent.parent / "lib").glob(
            f"python3*/site-packages/nvidia/{wheel}/lib"
        )
    caches = {name: str(directory / name.lower()) for name in ("CUPY_CACHE_DIR", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    return {**caches, "LD_LIBRARY_PATH": ":".join(map(str, paths)), "WARP_CACHE_PATH": str(directory / "warp")}


@contextmanager
def _running(name: str, directory: Path, *options: str) -> Iterator[tuple[Program, str]]:
    """Run a program up to its first phase; yields its version as well."""
    with Program(_command(name, *options), directory, _environment(name, directory)) as program:
        yield program, str(program.event("ready", _STARTS_S)["version"])


def _counts(copies: Mapping[str, Histogram]) -> Counter[str]:
    return Counter({kind: copied.count for kind, copied in copies.items() if copied.count})


def _assert_reported(exported: Metrics, truth: Truth, *, is_late: bool) -> None:
    """Every launch, graph launch and kernel, copy by direction, fill and allocation is what the driver counted."""
    comparison.assert_totals(exported, truth)
    assert exported.total(comparison.GRAPH_KERNELS) == truth.graph_kernels
    copies = _counts(exported.histograms_by(comparison.COPIES, "cuda.memcpy.kind"))
    # Of memory from before the agent it is not known where it lies: where a copy's name does not say so either, nothing does.
    unknown = copies.pop("MemcpyDefault", 0) if is_late else 0
    missing = _counts(truth.copies) - copies
    assert (copies - _counts(truth.copies), missing.total()) == (Counter(), unknown)
    if not unknown:
        by_kind = exported.by(comparison.COPIES, "cuda.memcpy.kind")
        assert +by_kind == +Counter({kind: copied.sum for kind, copied in truth.copies.items()})
    assert +exported.by(comparison.ALLOCATED, "cuda.memory.type") == +truth.allocated
    for found in (naming.of_launches(exported, truth), naming.of_graphs(exported, truth)):
        assert found.wrong == {}
        assert found.share >= NAMED


@EVERY
def test_a_program_is_reported_from_its_start(name: str, tmp_path: Path) -> None:
    with Agent(naming.arguments(tmp_path), tmp_path, {"LD_LIBRARY_PATH": str(ground.part("mock"))}) as agent:
        agent.wait_attached()
        with _running(name, tmp_path, "--phases", "2") as (program, version):
            program.run_phase(_RUNS_S)
            program.ready()
            truth = program.truth_now()
            naming.wait_exported(tmp_path / "out", truth)
            agent.stop()
            program.run_phase(_RUNS_S)
            program.finish()
    everything = read_metrics(tmp_path / "out")
    exported = everything.of(truth.pid)

    comparison.assert_nothing_lost(everything, truth.pid)
    assert truth.launches.total()
    _assert_reported(exported, truth, is_late=False)
    # What was allocated before the agent came has no size when it is freed.
    assert +exported.by(comparison.FREED, "cuda.memory.type") == +truth.freed
    assert +exported.by(comparison.USAGE, "cuda.memory.type") == +truth.live
    table.note(name, version, truth, "early", f"{truth.launches.total():,} launches, all equal")


@EVERY
def test_a_running_program_is_reported(name: str, tmp_path: Path) -> None:
    with _running(name, tmp_path, "--phases", "3") as (program, version):
        program.run_phase(_RUNS_S)
        program.ready()
        before = program.truth_now()
        with Agent(["--pid", str(program.pid), *naming.arguments(tmp_path)], tmp_path) as agent:
            agent.wait_attached()
            program.run_phase(_RUNS_S)
            program.ready()
            truth = program.truth_now() - before
            naming.wait_exported(tmp_path / "out", truth)
            agent.stop()
        program.run_phase(_RUNS_S)
        program.finish()
    everything = read_metrics(tmp_path / "out")

    comparison.assert_nothing_lost(everything, truth.pid)
    assert truth.launches.total()
    _assert_reported(everything.of(truth.pid), truth, is_late=True)
    table.note(name, version, truth, "late", f"{truth.launches.total():,} launches, all equal")


@EVERY
def test_stacks_of_a_recorded_command_are_whole(name: str, tmp_path: Path) -> None:
    out = tmp_path / "launches.otlp.json"
    record = [sys.executable, "-m", "otel_gpu", "record", "--type", "launch", "-o", out, "--"]
    environment = {
        **_environment(name, tmp_path),
        "MOCKCUDA_TRUTH": str(tmp_path / "truth-%p.json"),
        "MOCKCUDA_STATE": "",
    }
    with subprocess.Popen(
        [
            "env",
            *(f"{key}={value}" for key, value in environment.items()),
            *record,
            *_command(name, "--rounds", _ROUNDS.get(name, "200")),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as recording:
        said, errors = recording.communicate("\n" * 4, timeout=2 * _RUNS_S)
    assert recording.returncode == 0, errors
    (pid, *_), (version, *_) = re.findall(r'"pid": (\d+)', said), re.findall(r'"version": "([^"]+)"', said)
    truth = Truth.read(tmp_path / f"truth-{pid}.json")
    samples = [s for profile in read_profiles(out) for s in profile.samples]
    total = sum(s.value for s in samples)
    whole = sum(s.value for s in samples if not is_truncated(s.stack))

    assert total == truth.launches.total() + truth.graph_launches
    assert whole >= WHOLE * total, errors
    table.note(name, version, truth, "`record`", f"{whole / total:.1%} of stacks whole")
