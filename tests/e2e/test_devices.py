"""Which GPU is a series about? Programs on two devices, with NVML and without, agent first and late."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.e2e import comparison, ground
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program

UUIDS = {0: "5e1fca6d-0b6c-4a11-9d20-483230306d00", 1: "5e1fca6d-0b6c-4a11-9d20-483230306d01"}
MODEL = "NVIDIA H200 (mock)"
SETTLE_S = 1.5
UNTRACKED = "gpu.cuda.memory.untracked"

_HOLDS_MEMORY = """
import ctypes, os, sys
cu = ctypes.CDLL("libcuda.so.1")
def check(code):
    assert code == 0, code
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
check(cu.cuInit(0))
ordinal = int(sys.argv[1])
if sys.argv[2] == "asks":
    check(cu.cuDeviceGetUuid_v2(ctypes.create_string_buffer(16), ordinal))
check(cu.cuCtxCreate_v2(ctypes.byref(context), 0, ordinal))
check(cu.cuMemAlloc_v2(ctypes.byref(pointer), 5 << 20))
print('{"event": "ready"}', flush=True)
sys.stdin.readline()
check(cu.cuMemAlloc_v2(ctypes.byref(pointer), 3 << 20))
print('{"event": "phase"}', flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def hardware(tmp_path: Path) -> dict[str, str]:
    """Return the environment of programs and of the agent in which the mock's NVML knows both."""
    (tmp_path / "state").mkdir()
    state = {"MOCKCUDA_DEVICES": "2", "MOCKCUDA_STATE": str(tmp_path / "state")}
    return {**state, "LD_LIBRARY_PATH": ground.library_path()}


def _holder(ordinal: int, asks: bool) -> list[str]:
    return [sys.executable, "-c", _HOLDS_MEMORY, str(ordinal), "asks" if asks else "-"]


def _devices(exported: Metrics, name: str) -> set[tuple[object, ...]]:
    keys = ("cuda.device.index", "cuda.device.uuid", "cuda.device.model")
    return {tuple(s.attributes.get(k) for k in keys) for s in exported.named(name).samples}


def _observe(command: list[str], directory: Path, environment: dict[str, str], agents: dict[str, str]) -> Metrics:
    with Program(command, directory, environment) as program:
        program.ready()
        with Agent(["--pid", str(program.pid), "--output", f"file:{directory / 'out'}"], directory, agents) as agent:
            agent.wait_attached()
            program.run_phase()
            agent.stop()
        program.go()
        program.finish()
    return read_metrics(directory / "out").of(program.pid)


def test_an_agent_that_was_first_overhears_uuids(tmp_path: Path, hardware: dict[str, str]) -> None:
    with Agent(["--output", f"file:{tmp_path / 'out'}"], tmp_path, {"LD_LIBRARY_PATH": ground.library_path()}) as agent:
        agent.wait_attached()
        with Program(_holder(1, asks=True), tmp_path, {**hardware, "CUDA_VISIBLE_DEVICES": "0"}) as program:
            program.ready()
            program.run_phase()
            program.go()
            program.finish()
        agent.stop()

    exported = read_metrics(tmp_path / "out").of(program.pid)
    # The agent's own mock of NVML knows one GPU only, and not this one.
    assert _devices(exported, comparison.ALLOCATED) == {(1, UUIDS[1], None)}


def test_a_program_that_never_asks_is_told_by_nvml(tmp_path: Path, hardware: dict[str, str]) -> None:
    with Agent(["--output", f"file:{tmp_path / 'out'}"], tmp_path, hardware) as agent:
        agent.wait_attached()
        with Program(_holder(1, asks=False), tmp_path, hardware) as program:
            program.ready()
            # Long enough for a busy agent to read its environment.
            time.sleep(SETTLE_S)
            program.run_phase()
            program.go()
            program.finish()
        agent.stop()

    exported = read_metrics(tmp_path / "out").of(program.pid)
    assert _devices(exported, comparison.ALLOCATED) == {(1, UUIDS[1], MODEL)}


def test_a_late_agent_finds_the_one_device_by_nvml(tmp_path: Path, hardware: dict[str, str]) -> None:
    exported = _observe(_holder(1, asks=False), tmp_path, hardware, hardware)

    assert _devices(exported, comparison.ALLOCATED) == {(1, UUIDS[1], MODEL)}


def test_without_nvml_a_late_agent_leaves_out_what_it_cannot_know(tmp_path: Path, hardware: dict[str, str]) -> None:
    exported = _observe(_holder(1, asks=False), tmp_path, hardware, {})

    assert {uuid for _, uuid, _ in _devices(exported, comparison.ALLOCATED)} == {None}
    assert exported.named(UNTRACKED).samples == []


def test_memory_from_before_the_agent_is_untracked(tmp_path: Path, hardware: dict[str, str]) -> None:
    exported = _observe(_holder(0, asks=False), tmp_path, hardware, hardware)

    (untracked,) = exported.named(UNTRACKED).samples
    (held,) = exported.named("hw.gpu.process.memory.usage").samples
    assert untracked.attributes["cuda.device.uuid"] == UUIDS[0]
    assert held.attributes["hw.id"] == f"GPU-{UUIDS[0]}"
    assert exported.total(comparison.USAGE) == 3 << 20
    assert untracked.value == held.value - (3 << 20) == 5 << 20


def test_hardware_metrics_are_about_the_host(tmp_path: Path, hardware: dict[str, str]) -> None:
    with Agent(["--output", f"file:{tmp_path / 'out'}"], tmp_path, hardware) as agent:
        agent.wait_attached()
        agent.stop()

    limits = read_metrics(tmp_path / "out").named("hw.gpu.memory.limit").samples
    assert {s.attributes["hw.id"] for s in limits} == {f"GPU-{uuid}" for uuid in UUIDS.values()}
    assert all("host.name" in s.resource and "process.pid" not in s.resource for s in limits)
