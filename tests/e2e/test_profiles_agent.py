"""Do the agent's profiles of a whole program add up to what happened, in files and at a real Collector?"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from otel_gpu.exporters.otlp.settings import Protocol
from otel_gpu.exporters.recordings.reading import read_profiles
from otel_gpu.signals.profiles import (
    CPU,
    GPU_ALLOC_SPACE,
    GPU_COPY,
    GPU_INUSE_SPACE,
    GPU_LAUNCHES,
    GPU_TIME_LOWER,
    GPU_TIME_UPPER,
    GPU_WAIT,
    OFF_CPU,
    Profile,
    merge,
)
from tests.e2e import ground
from tests.e2e.collector import Collector
from tests.e2e.exported import read_metrics, whole_lines
from tests.e2e.processes import Agent, Program
from tests.e2e.truth import Truth

_STORM = ("--gate", "--threads", "2", "--launches", "20000", "--memory", "40")
_CONFIG = """
receivers: {{profile: {{types: [launch, wait, copy, alloc, inuse]}}}}
exporters: {{{exporter}}}
service: {{interval: 300ms}}
"""


def _observe(directory: Path, exporter: str, programs: int = 1) -> list[Truth]:
    """Run programs under an agent that takes profiles and nothing else; return what happened in each."""
    config = directory / "agent.yaml"
    config.write_text(_CONFIG.format(exporter=exporter))
    storm = [ground.part("programs") / "launch_storm", *_STORM]
    running = [Program(storm, directory) for _ in range(programs)]
    try:
        for program in running:
            program.ready()
        arguments = ["--config", config, "--pid", *[str(p.pid) for p in running]]
        with Agent(arguments, directory) as agent:
            agent.wait_attached()
            for program in running:
                program.run_phase()
            truths = [p.finish() for p in running]
            assert agent.wait() == 0, agent.error_text
        return truths
    finally:
        for program in running:
            program.__exit__(None, None, None)


def _of(profiles: Sequence[Profile], pid: int) -> dict[str, Profile]:
    return {p.type.name: p for p in profiles if dict(p.resource.attributes)["process.pid"] == pid}


def _assert_true(profiles: Sequence[Profile], truth: Truth) -> None:
    found = _of(merge(profiles), truth.pid)
    assert found[GPU_LAUNCHES.name].total == truth.launches.total()
    assert found[GPU_COPY.name].total == truth.copied.sum
    assert found[GPU_ALLOC_SPACE.name].total == truth.allocated.total()
    assert found[GPU_WAIT.name].total > 0


@pytest.mark.parametrize("protocol", ("grpc", "http/protobuf"))
def test_what_a_collector_receives_is_what_happened(protocol: Protocol, collector: Collector, tmp_path: Path) -> None:
    kind = "otlp_grpc" if protocol == "grpc" else "otlp_http"
    (truth,) = _observe(tmp_path, f'{kind}: {{endpoint: "{collector.endpoint(protocol)}"}}')

    _assert_true(read_profiles(collector.received("profiles", protocol)), truth)


def test_each_process_has_its_own_profiles(tmp_path: Path) -> None:
    truths = _observe(tmp_path, f"file: {{path: {tmp_path / 'out'}}}", programs=2)

    profiles = read_profiles(tmp_path / "out" / "profiles.jsonl")
    assert {dict(p.resource.attributes)["process.pid"] for p in profiles} == {t.pid for t in truths}
    for truth in truths:
        _assert_true(profiles, truth)
    assert not (tmp_path / "out" / "metrics.jsonl").exists()


def test_memory_in_use_falls_when_it_is_freed(tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(_CONFIG.format(exporter=f"file: {{path: {tmp_path / 'out'}}}"))
    out = tmp_path / "out" / "profiles.jsonl"
    command = [sys.executable, "-S", ground.PROGRAMS / "memory_script.py"]
    with Program(command, tmp_path, {"MOCKCUDA_DEVICES": "2"}) as program:
        program.ready()
        with Agent(["--config", config, "--pid", str(program.pid)], tmp_path) as agent:
            agent.wait_attached()
            _script(program, [[0, "allocate", "device", 5000], [1, "allocate", "managed", 3000]])
            _wait_for_in_use(out, 8000)
            _script(program, [[1, "free", "device", 0]])
            _wait_for_in_use(out, 3000)
            _script(program, [[1, "free", "managed", 1]])
            _wait_for_in_use(out, 0)
            agent.stop()

    (profile,) = [p for p in merge(read_profiles(out)) if p.type.name == GPU_ALLOC_SPACE.name]
    assert {s.value for s in profile.samples} == {5000, 3000}


def _script(program: Program, calls: list[list[object]]) -> None:
    program.process.stdin.write(json.dumps(calls) + "\n")
    program.process.stdin.flush()
    assert all(code == 0 for code, _ in program.event("phase")["did"])


def _wait_for_in_use(out: Path, size_bytes: int) -> None:
    """Wait for two intervals one after the other in which so much is in use; without any there is no profile at all."""
    deadline, begun = time.monotonic() + 20, whole_lines(out)
    while True:
        time.sleep(1)
        used = [_in_use(out, line) for line in whole_lines(out)[len(begun) :]]
        if used[-2:] == [size_bytes] * 2 or (size_bytes == 0 and not used):
            return
        begun = begun if size_bytes else whole_lines(out)
        assert time.monotonic() < deadline, f"{used} bytes are in use, not {size_bytes}"


def _in_use(out: Path, line: str) -> int:
    alone = out.with_name("alone.jsonl")
    alone.write_text(line + "\n")
    return sum(p.total for p in read_profiles(alone) if p.type.name == GPU_INUSE_SPACE.name)


def test_metrics_go_on_beside_profiles(tmp_path: Path) -> None:
    with Program([ground.part("programs") / "launch_storm", *_STORM], tmp_path) as program:
        program.ready()
        arguments = ["--profiles", "--pid", str(program.pid), "--output", f"file:{tmp_path / 'out'}"]
        with Agent(arguments, tmp_path) as agent:
            agent.wait_attached()
            agent.wait_for("stacks are being taken")
            program.run_phase()
            truth = program.finish()
            agent.wait()

    metrics = read_metrics(tmp_path / "out")
    launches = _of(merge(read_profiles(tmp_path / "out" / "profiles.jsonl")), truth.pid)[GPU_LAUNCHES.name]
    assert launches.total == metrics.total("gpu.cuda.kernel.launch.calls") == truth.launches.total()
    states = metrics.by("otel_gpu.stacks", "otel_gpu.state")
    assert states["complete"] > 0
    assert states["truncated"] <= states["complete"] / 100
    lost = metrics.by("otel_gpu.events.lost", "otel_gpu.event")
    assert {event: n for event, n in lost.items() if n} == {}


_ALL = """
receivers: {{cuda: {{}}, self: {{}}, profile: {{types: [launch, wait, copy, alloc, cpu, offcpu, gputime]}}}}
exporters: {{file: {{path: {out}}}}}
"""


def test_what_stacks_without_room_stood_for_is_in_every_total(tmp_path: Path) -> None:
    config, out = tmp_path / "agent.yaml", tmp_path / "out"
    config.write_text(_ALL.format(out=out))
    storm = [ground.part("programs") / "launch_storm", "--gate", "--threads", "8", "--launches", "100000"]
    # So slow that what the copies take is what is waited for.
    slow = {"MOCKCUDA_COPY_GBPS": "2"}
    with Program([*storm, "--memory", "50"], tmp_path, slow) as program:
        program.ready()
        with Agent(["--config", config, "--pid", str(program.pid)], tmp_path) as agent:
            agent.wait_attached()
            # The CPUs are sampled for programs that it knows: it has to learn of this one before it is stopped.
            agent.wait_for("stacks are being taken")
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            # Nobody reads the buffer until the program has ended.
            agent.process.send_signal(signal.SIGSTOP)
            began = time.monotonic()
            program.run_phase()
            elapsed_s = time.monotonic() - began
            truth = program.finish()
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            agent.process.send_signal(signal.SIGCONT)
            assert agent.wait() == 0, agent.error_text

    metrics = read_metrics(out)
    assert metrics.by("otel_gpu.events.lost", "otel_gpu.event")["profile_events_full"] > 0
    profiles = merge(read_profiles(out / "profiles.jsonl"))
    _assert_true(profiles, truth)
    found = {name: profile.total for name, profile in _of(profiles, truth.pid).items()}
    busy = metrics.of(truth.pid).by("gpu.cuda.busy.time", "otel_gpu.bound")
    assert found[GPU_TIME_LOWER.name] == pytest.approx(busy["lower"] * 1e9, abs=1e3)
    assert found[GPU_TIME_UPPER.name] == pytest.approx(busy["upper"] * 1e9, abs=1e3)
    # Of the others two clocks, or one and a sample now and then, are compared.
    waited_s = metrics.of(truth.pid).total("gpu.cuda.synchronize.duration")
    assert found[GPU_WAIT.name] == pytest.approx(waited_s * 1e9, rel=0.1)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    assert found[CPU.name] * CPU.every(1_000_000_000 // 49).period == pytest.approx(cpu_s * 1e9, rel=0.5)
    # Its first thread waits for the others all the time.
    assert found[OFF_CPU.name] > 0.8e9 * elapsed_s


def test_nothing_of_profiles_is_loaded_unless_asked_for(tmp_path: Path) -> None:
    with Program([ground.part("programs") / "launch_storm", *_STORM], tmp_path) as program:
        program.ready()
        with Agent(["--pid", str(program.pid), "--output", f"file:{tmp_path / 'out'}"], tmp_path) as agent:
            agent.wait_attached()
            maps = Path(f"/proc/{agent.pid}/maps").read_text()
            program.run_phase()
            program.finish()
            agent.wait()

    assert "unwind_rows" not in maps
    assert not (tmp_path / "out" / "profiles.jsonl").exists()
    assert "otel_gpu.stacks" not in json.dumps((tmp_path / "out" / "metrics.jsonl").read_text())
    assert os.listdir(tmp_path / "out") == ["metrics.jsonl"]
