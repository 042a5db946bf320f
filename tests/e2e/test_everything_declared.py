"""Is everything that is declared emitted? One agent, with all receivers, over programs that do all that is counted.

Hardware is the stand-ins of the driver, of NVML and of HIP: there is no metric that needs more. One that could not be had
from them would stand in `NEEDS_HARDWARE`, with the reason.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from otel_gpu import telemetry
from otel_gpu.reporters.reading import read_profiles
from otel_gpu.signals.metrics import OVERFLOW
from otel_gpu.signals.profiles import CHOICES, PROFILE_TYPES
from tests.e2e import ground, liar, test_torch_profiles
from tests.e2e.exported import read_metrics
from tests.e2e.processes import PATIENCE_S, Agent, Program
from tests.e2e.test_busy import CLOCK
from tests.e2e.test_hip import built  # noqa: F401

NEEDS_HARDWARE: dict[str, str] = {}
"""Metrics that no stand-in gives, and why; one in here that is emitted all the same fails the test too."""
NEEDS_RECEIVER = {spec.name for group in ("Requests", "RDMA") for spec in telemetry.GROUPS[group]}
"""Metrics of receivers that this agent has not: `tests/unit/test_serving_metrics.py` shows those of requests that are made,
`test_rdma.py` those of RDMA."""
NEEDS_PYTORCH = {t.name for t in test_torch_profiles.TYPES}
"""Types of profiles that tests record which are run where PyTorch is (`make test-torch`)."""
_TYPES = [choice for choice in CHOICES if choice != "tensor"]
_COUNTERS, _RATE = "MOCKNVML_PCIE_TX=1000\nMOCKNVML_PCIE_RX=2000\n", "MOCKNVML_PCIE_RATE=3000\n"
"""What a GPU knows of its link: bytes, or if it does not count them how many there are a second."""

_CONFIG = """
receivers: {{cuda: {{}}, nvml: {{}}, self: {{}}, profile: {{types: [{types}]}}}}
processors: {{kernel_names: {{top: 0}}}}
exporters: {{file: {{path: {out}}}}}
service:
  interval: 300ms
  pipelines:
    metrics: {{receivers: [cuda, nvml, self], exporters: [file]}}
    profiles: {{receivers: [profile], exporters: [file]}}
"""

_MAPS_LATE = """
import ctypes, sys
print('{"event": "ready"}', flush=True)
sys.stdin.readline()
cu = ctypes.CDLL(sys.argv[1])
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert not cu.cuInit(0) and not cu.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
assert not cu.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
print('{"event": "phase"}', flush=True)
sys.stdin.readline()
"""
"""Maps a driver that nobody has probed while the agent looks on."""

_FREES_LATE = """
import ctypes, sys
library, allocate, free = sys.argv[1:]
gpu = ctypes.CDLL(library)
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
if "cuda" in library:
    assert not gpu.cuInit(0) and not gpu.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
assert not gpu[allocate](ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
print('{"event": "ready"}', flush=True)
sys.stdin.readline()
assert not gpu[free](pointer)
assert not gpu[allocate](ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
print('{"event": "phase"}', flush=True)
sys.stdin.readline()
"""
"""Frees what it had before the agent was there, and holds as much anew."""


@pytest.fixture(scope="module")
def out(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """Return what an agent wrote of programs that do everything."""
    directory = tmp_path_factory.mktemp("everything")
    (directory / "state").mkdir()
    control = directory / "nvml"
    control.write_text(_COUNTERS)
    cuda = {"LD_LIBRARY_PATH": ground.library_path(), "MOCKCUDA_STATE": str(directory / "state")}
    hip = {"LD_LIBRARY_PATH": str(built / "rocm6"), "MOCKHIP_TRUTH": str(directory / "truth-of-hip.json")}
    (directory / "agent.yaml").write_text(_CONFIG.format(types=", ".join(_TYPES), out=directory / "out"))
    with ExitStack() as running:

        def start(*command: str | Path, **environment: str) -> Program:
            return running.enter_context(Program(list(command), directory, {**cuda, **environment}))

        programs, python = ground.part("programs"), (sys.executable, "-c")
        gated = [
            start(programs / "busy_mix", "--rounds", "100", **CLOCK),
            start(programs / "graph_mix", "50"),
            start(
                programs / "launch_storm", "--gate", "--launches", "3000", "--memory", "40", "--errors", "3",
                OTEL_RESOURCE_ATTRIBUTES="host.name=elsewhere",
            ),
            start(*python, _MAPS_LATE, ground.own_driver(directory / "late") / "libcuda.so.1"),
            start(*python, _FREES_LATE, "libcuda.so.1", "cuMemAlloc_v2", "cuMemFree_v2"),
            start(*python, _FREES_LATE, "libamdhip64.so.6", "hipMalloc", "hipFree", **hip),
            start(built / "hip_calls_6", "2", "200", **hip),
            start(liar.built() / "hostile", "handles", "60000", LD_LIBRARY_PATH=str(liar.built())),
        ]  # fmt: skip
        for program in gated:
            program.ready()
        arguments = ["--config", directory / "agent.yaml", *(w for p in gated for w in ("--pid", str(p.pid)))]
        with Agent(arguments, directory, {**cuda, "MOCKNVML_CONTROL": str(control)}) as agent:
            agent.wait_attached()
            for program in gated:
                program.run_phase()
            _wait_for(directory / "out", "hw.gpu.io", "gpu.cuda.memory.untracked")
            control.write_text(_RATE)
            _wait_for(directory / "out", "hw.gpu.io.rate")
            agent.stop()
    return directory / "out"


def _wait_for(out: Path, *metrics: str) -> None:
    """Wait until these are there, as long as it is sensible; what is missing then the tests say."""
    deadline = time.monotonic() + PATIENCE_S
    while not set(metrics) <= {s.name for s in read_metrics(out).samples} and time.monotonic() < deadline:
        time.sleep(0.2)


def test_every_metric_is_emitted(out: Path) -> None:
    emitted = {sample.name for sample in read_metrics(out).samples}

    assert set(telemetry.ALL) - emitted == set(NEEDS_HARDWARE) | NEEDS_RECEIVER


def test_every_metric_has_only_attributes_that_are_declared(out: Path) -> None:
    found: dict[str, set[str]] = {}
    for sample in read_metrics(out).samples:
        found.setdefault(sample.name, set()).update(sample.attributes)

    overflow = {name for name, _ in OVERFLOW}
    more = {name: of - {*telemetry.ALL[name].attributes} - overflow for name, of in found.items()}
    assert {name: of for name, of in more.items() if of} == {}


def test_every_profile_type_is_emitted(out: Path) -> None:
    emitted = {profile.type.name for profile in read_profiles(out / "profiles.jsonl")}

    assert set(PROFILE_TYPES) - emitted <= NEEDS_PYTORCH
    assert {t.name for choice in _TYPES for t in CHOICES[choice]} <= emitted
