"""A program on HIP, three sources: what it does, what the stand-in was asked, and what the agent exported."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from otel_gpu.stacks.demangle.names import demangle
from tests.e2e import comparison, ground
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program
from tests.programs import both_calls

STANDIN = Path(__file__).parent.parent / "standins" / "hip"
THREADS, LAUNCHES = 4, 5_000
ROUNDS = 16
Truth = dict[str, dict[str, dict[str, int]]]


@dataclass(frozen=True)
class Run:
    truth: Truth
    everything: Metrics
    exported: Metrics
    """The series about the program."""


@pytest.fixture(scope="module")
def built() -> Path:
    if shutil.which("gcc") is None or shutil.which("make") is None:
        pytest.skip("no C compiler: apt-get install gcc make")
    subprocess.run(["make", "-s", "-C", STANDIN], check=True, capture_output=True)
    return STANDIN / "build"


def observe(built: Path, program: str, release: int, directory: Path) -> Run:
    truth = directory / "truth.json"
    environment = {"LD_LIBRARY_PATH": str(built / f"rocm{release}"), "MOCKHIP_TRUTH": str(truth)}
    with Program([built / program, str(THREADS), str(LAUNCHES)], directory, environment) as observed:
        observed.ready()
        with Agent(["--pid", str(observed.pid), "--output", f"file:{directory / 'out'}"], directory) as agent:
            agent.wait_watching()
            agent.wait_for(rf"attached \d+ probes to .*libamdhip64.so.{release}")
            observed.run_phase(timeout=120)
            assert observed.wait() == 0, observed.error_text
            agent.stop()
    everything = read_metrics(directory / "out")
    return Run(json.loads(truth.read_text()), everything, everything.of(observed.pid))


@pytest.fixture(scope="module", params=[5, 6], ids=["calls-nest", "calls-do-not-nest"])
def run(request: pytest.FixtureRequest, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return observe(built, f"hip_calls_{request.param}", request.param, tmp_path_factory.mktemp("hip"))


def test_every_launch_is_counted_by_name_and_dimensions(run: Run) -> None:
    kernels = {demangle(name): k for name, k in run.truth["kernels"].items()}
    assert sum(k["launches"] for k in kernels.values()) == THREADS * (LAUNCHES + 5 * ROUNDS)
    assert run.exported.by("gpu.hip.kernel.launch.calls", "hip.kernel.name") == {
        name: k["launches"] for name, k in kernels.items()
    }
    assert run.exported.by("gpu.hip.kernel.grid.size", "hip.kernel.name") == {
        n: k["blocks"] for n, k in kernels.items()
    }
    assert run.exported.by("gpu.hip.kernel.block.size", "hip.kernel.name") == {
        n: k["threads"] for n, k in kernels.items()
    }


def test_a_launch_is_of_the_device_that_its_thread_chose_or_of_the_first(run: Run) -> None:
    by_device = run.exported.by("gpu.hip.kernel.launch.calls", "hip.device.index")
    said = {str(n): launches for n, launches in enumerate(run.truth["launches_by_device"]) if launches}
    # The agent came late: it cannot know that the first thread had chosen no device before.
    assert by_device["1"] == said["1"]
    assert by_device["0"] + by_device["None"] == said["0"]


def test_graphs_execute_what_was_captured_and_added(run: Run) -> None:
    kernels = run.truth["kernels"]
    assert run.exported.total("gpu.hip.graph.launch.calls") == run.truth["graph_launches"]
    assert run.exported.by("gpu.hip.graph.kernel.calls", "hip.kernel.name") == {
        demangle(name): k["in_graphs"] for name, k in kernels.items() if k["in_graphs"]
    }
    assert copies(run.exported, "gpu.hip.graph.memory.copies") == run.truth["graph_copies"]
    assert run.exported.total("gpu.hip.graph.memset.bytes") == run.truth["graph_memset_bytes"]


def test_every_copy_is_counted_once_by_the_kind_that_was_asked_or_found_out(run: Run) -> None:
    assert copies(run.exported, "gpu.hip.memory.copies") == run.truth["copies"]


def test_every_memset_byte_is_counted(run: Run) -> None:
    assert run.exported.total("gpu.hip.memset.bytes") == run.truth["memset_bytes"]


def test_every_byte_allocated_and_freed_is_counted_by_type(run: Run) -> None:
    assert +run.exported.by("gpu.hip.memory.allocations", "hip.memory.type") == +Counter(run.truth["allocated"])
    assert +run.exported.by("gpu.hip.memory.free.bytes", "hip.memory.type") == +Counter(run.truth["freed"])
    assert +run.exported.by("gpu.hip.memory.usage", "hip.memory.type") == {}
    assert run.exported.total("gpu.hip.memory.unmatched.frees") == 0


def test_every_wait_is_counted_by_function(run: Run) -> None:
    waits = run.exported.histograms_by("gpu.hip.synchronize.duration", "hip.function")
    assert waits["hipStreamSynchronize"].count == THREADS * ROUNDS
    assert waits["hipDeviceSynchronize"].count == THREADS
    assert waits["hipStreamSynchronize"].sum >= THREADS * ROUNDS * 100e-6


def test_errors_are_counted_by_function_and_code(run: Run) -> None:
    errors = {(s.attributes["hip.function"], s.attributes["error.type"]): s.value for s in errors_of(run)}
    assert errors == {
        ("hipMalloc", "hipErrorOutOfMemory"): run.truth["out_of_memory"],
        ("hipSetDevice", "hipErrorInvalidDevice"): THREADS - 1,  # all but the first try it
    }


def test_nothing_is_taken_for_cuda_and_nothing_is_lost(run: Run) -> None:
    assert not [s.name for s in run.exported.samples if s.name.startswith("gpu.cuda.")]
    comparison.assert_nothing_lost(run.everything)


def test_kernels_of_a_stripped_program_are_shown_by_their_place(built: Path, tmp_path: Path) -> None:
    stripped = observe(built, "hip_calls_stripped", 6, tmp_path)

    names = stripped.exported.by("gpu.hip.kernel.launch.calls", "hip.kernel.name")
    assert sorted(names.values()) == sorted(k["launches"] for k in stripped.truth["kernels"].values())
    assert [n for n in names if not n.startswith("hip_calls_stripped+0x")] == ["triton_poi_fused_add_0"]


def test_an_agent_that_came_first_knows_every_launchs_device(built: Path, tmp_path: Path) -> None:
    environment = {"LD_LIBRARY_PATH": str(built / "rocm6"), "MOCKHIP_TRUTH": str(tmp_path / "truth.json")}
    with Agent(["--output", f"file:{tmp_path / 'out'}"], tmp_path) as agent:
        agent.wait_watching()
        with Program([built / "hip_calls_6", "2", "50"], tmp_path, environment) as program:
            program.ready()
            agent.wait_for(r"attached \d+ probes to .*libamdhip64.so.6")
            program.run_phase()
            assert program.wait() == 0, program.error_text
        agent.stop()
    launches = json.loads((tmp_path / "truth.json").read_text())["launches_by_device"]

    exported = read_metrics(tmp_path / "out").of(program.pid)
    by_device = exported.by("gpu.hip.kernel.launch.calls", "hip.device.index")

    assert by_device == {str(n): count for n, count in enumerate(launches) if count}
    assert +exported.by("gpu.hip.memory.usage", "hip.memory.type") == {}


def test_a_program_that_uses_both_is_counted_apart(built: Path, tmp_path: Path) -> None:
    paths = f"{built / 'rocm6'}:{ground.part('mock')}"
    with Program([sys.executable, ground.PROGRAMS / "both_calls.py"], tmp_path, {"LD_LIBRARY_PATH": paths}) as program:
        program.ready()
        with Agent(["--pid", str(program.pid), "--output", f"file:{tmp_path / 'out'}"], tmp_path) as agent:
            agent.wait_watching()
            agent.wait_for(r"attached \d+ probes to .*libamdhip64.so.6")
            program.run_phase()
            agent.stop()
        program.go()
        assert program.wait() == 0, program.error_text

    exported = read_metrics(tmp_path / "out").of(program.pid)
    assert exported.by("gpu.cuda.memory.usage", "cuda.memory.type") == {"device": both_calls.CUDA_BYTES}
    assert exported.by("gpu.hip.memory.usage", "hip.memory.type") == {"device": 0}
    assert exported.total("gpu.hip.memory.free.bytes") == both_calls.HIP_BYTES
    assert exported.total("gpu.cuda.memory.free.bytes") == 0
    assert exported.total("gpu.cuda.memory.copies") == both_calls.COPIES * both_calls.CUDA_BYTES
    assert exported.total("gpu.hip.memory.copies") == both_calls.COPIES * both_calls.HIP_BYTES
    waits = {s.name: s.attributes for s in exported.samples if s.name.endswith("synchronize.duration")}
    assert waits["gpu.cuda.synchronize.duration"]["cuda.function"] == "cuMemcpyHtoD"
    assert waits["gpu.hip.synchronize.duration"]["hip.function"] == "hipMemcpy"


def copies(exported: Metrics, metric: str) -> dict[str, dict[str, int]]:
    return {
        kind: {"count": h.count, "bytes": int(h.sum)}
        for kind, h in exported.histograms_by(metric, "hip.memcpy.kind").items()
    }


def errors_of(run: Run) -> list:
    return run.exported.named("gpu.hip.errors").samples
