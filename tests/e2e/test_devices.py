"""Which GPU is a series about? Programs on two devices, with NVML and without, agent first and late."""

from __future__ import annotations

import struct
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e import comparison, ground
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program
from tests.e2e.test_ledger import observer, usage
from tests.waiting import until

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


_GATE = "import os, sys; sys.stdin.readline(); os.execv(sys.argv[1], sys.argv[1:])"
"""Becomes another program when it is told to: what NVML says of it is there before it does anything."""


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


@pytest.mark.parametrize("is_first", [True, False], ids=["agent-first", "agent-late"])
def test_a_program_that_chose_its_gpu_itself_is_on_that_one(
    tmp_path: Path, hardware: dict[str, str], *, is_first: bool
) -> None:
    """Nobody sees what it has set of its variables after its start: NVML says that its device 0 is the third GPU."""
    four = {**hardware, "MOCKCUDA_DEVICES": "4"}
    out, state = tmp_path / "out", Path(hardware["MOCKCUDA_STATE"])
    config = tmp_path / "agent.yaml"
    config.write_text(f"receivers: {{cuda: {{libraries: [{ground.part('mock')}/libcuda.so.1]}}, nvml: {{}}}}\n")

    def start() -> Program:
        # The mock knows no CUDA_VISIBLE_DEVICES: where the program is, is said for it.
        gated = [sys.executable, "-c", _GATE, *_holder(0, asks=False)]
        program = stack.enter_context(Program(gated, tmp_path, {**four, "MOCKCUDA_STATE": ""}))
        bytes_of = [5 << 20 if n == 2 else 0 for n in range(16)]
        said = struct.pack("<3Q16Q16Q", 0x4D4F434B43554441, program.pid, 1 << 2, *bytes_of, *[0] * 16)
        (state / f"mockcuda-{program.pid}").write_bytes(said)
        program.go()
        program.ready()
        return program

    with ExitStack() as stack:
        program = None if is_first else start()
        agent = stack.enter_context(Agent(["--config", config, "--output", f"file:{out}"], tmp_path, four))
        agent.wait_attached()
        program = program or start()
        time.sleep(SETTLE_S)
        program.run_phase()
        time.sleep(SETTLE_S)
        program.go()
        program.finish()
        agent.stop()

    found = {uuid for _, uuid, _ in _devices(read_metrics(out).of(program.pid), comparison.ALLOCATED)}
    assert found - {None} == {UUIDS[0][:-1] + "2"}


def test_without_nvml_a_late_agent_leaves_out_what_it_cannot_know(tmp_path: Path, hardware: dict[str, str]) -> None:
    exported = _observe(_holder(1, asks=False), tmp_path, hardware, {})

    assert {uuid for _, uuid, _ in _devices(exported, comparison.ALLOCATED)} == {None}
    assert exported.named(UNTRACKED).samples == []


def test_memory_from_before_the_agent_is_untracked(tmp_path: Path, hardware: dict[str, str]) -> None:
    exported = _observe(_holder(0, asks=False), tmp_path, hardware, hardware)

    (untracked,) = exported.named(UNTRACKED).samples
    (held,) = exported.named("gpu.nvml.process.memory.usage").samples
    assert untracked.attributes["cuda.device.uuid"] == UUIDS[0]
    assert held.attributes["hw.id"] == untracked.attributes["hw.id"] == f"GPU-{UUIDS[0]}"
    assert exported.total(comparison.USAGE) == 3 << 20
    assert untracked.value == held.value - (3 << 20) == 5 << 20


def test_hardware_metrics_are_about_the_host(tmp_path: Path, hardware: dict[str, str]) -> None:
    with Agent(["--output", f"file:{tmp_path / 'out'}"], tmp_path, hardware) as agent:
        agent.wait_attached()
        agent.stop()

    limits = read_metrics(tmp_path / "out").named("hw.gpu.memory.limit").samples
    assert {s.attributes["hw.id"] for s in limits} == {f"GPU-{uuid}" for uuid in UUIDS.values()}
    assert all("host.name" in s.resource and "process.pid" not in s.resource for s in limits)


_THREADS = """
import ctypes, json, os, sys, threading
cu = ctypes.CDLL("libcuda.so.1")
LAST = "/proc/sys/kernel/ns_last_pid"
function = ctypes.c_void_p()
def check(code):
    assert code == 0, code
def launch(times):
    for _ in range(times):
        cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
def enter(device):
    check(cu.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, device))
def on_thread(work, number=None):
    found = []
    def run():
        found.append(threading.get_native_id())
        if number in (None, found[0]):
            work()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]
def with_number(number, work):
    # Others start threads too: the number is asked for until it comes.
    for _ in range(2000):
        with open(LAST, "w") as last:
            last.write(str(number - 1))
        if on_thread(work, number) == number:
            return
    sys.exit("the number never came")
def start():
    check(cu.cuInit(0))
    enter(0)
    module = ctypes.c_void_p()
    check(cu.cuModuleLoadData(ctypes.byref(module), b".version 8.0\\n.target sm_90\\n.address_size 64\\n"))
    check(cu.cuModuleGetFunction(ctypes.byref(function), module, b"kernel"))
def first():
    enter(1)
    launch(7)
"""

_REUSE = (
    _THREADS
    + """
start()
print('{"event": "ready"}', flush=True)
sys.stdin.readline()
number = on_thread(first)
with_number(number, lambda: launch(11))
with_number(number, lambda: (enter(0), launch(13)))
print('{"event": "phase", "pids": []}', flush=True)
"""
)

_EXEC_AND_FORK = (
    _THREADS
    + """
if len(sys.argv) > 1:
    check(cu.cuInit(0))
    launch(11)
    print(json.dumps({"event": "phase", "pids": [int(sys.argv[1])]}), flush=True)
    sys.exit()
start()
print('{"event": "ready"}', flush=True)
sys.stdin.readline()
first()
child = os.fork()
if not child:
    launch(13)
    os._exit(0)
os.waitpid(child, 0)
os.execv(sys.executable, [sys.executable, "-c", os.environ["SOURCE"], str(child)])
"""
)


def _run_observed(source: str, directory: Path, environment: dict[str, str]) -> Metrics:
    # Without NVML, so that what the program does not say itself stays unknown.
    config = directory / "agent.yaml"
    config.write_text(f"receivers: {{cuda: {{libraries: [{ground.part('mock')}/libcuda.so.1]}}}}\n")
    with Agent(["--config", config, "--output", f"file:{directory / 'out'}"], directory) as agent:
        agent.wait_attached()
        with Program([sys.executable, "-c", source], directory, {**environment, "SOURCE": source}) as program:
            program.ready()
            pids = {program.pid, *program.run_phase()["pids"]}
            program.finish()
        agent.stop()
    return read_metrics(directory / "out").where(lambda s: s.resource.get("process.pid") in pids)


def test_a_thread_does_not_inherit_the_device_of_an_ended_one(tmp_path: Path, hardware: dict[str, str]) -> None:
    exported = _run_observed(_REUSE, tmp_path, hardware)

    assert exported.by(comparison.LAUNCHES, "cuda.device.index") == {"1": 7, "None": 11, "0": 13}


def test_neither_exec_nor_fork_inherits_a_device(tmp_path: Path, hardware: dict[str, str]) -> None:
    exported = _run_observed(_EXEC_AND_FORK, tmp_path, hardware)

    assert exported.by(comparison.LAUNCHES, "cuda.device.index") == {"1": 7, "None": 11 + 13}


def test_a_green_context_is_on_its_device_and_its_memory_is_the_primary_ones(tmp_path: Path) -> None:
    command = [sys.executable, "-S", ground.PROGRAMS / "green_contexts.py"]
    with observer() as agent, Program(command, tmp_path, {"MOCKCUDA_DEVICES": "2"}) as program:
        program.ready()
        program.run_phase()
        launches: Counter[object] = Counter()
        for point in agent.snapshot():
            if point.name == comparison.LAUNCHES and ("process.pid", program.pid) in point.resource.attributes:
                launches[dict(point.attributes).get("cuda.device.index")] += point.value
        assert launches == {0: 1, 1: 9}
        assert usage(agent, program.pid) == {("device", 0): 2000, ("device", 1): 5000}

        program.run_phase()
        assert usage(agent, program.pid) == {("device", 0): 2000, ("device", 1): 5000}
        assert program.truth_now().live["device"] == 7000

        program.run_phase()
        assert program.truth_now().live["device"] == 6000
        until(lambda: usage(agent, program.pid) == {("device", 0): 2000, ("device", 1): 4000})
