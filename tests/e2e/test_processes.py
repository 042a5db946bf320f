"""Processes that come and go, that load the driver late, that were there before, that the agent was not asked about."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from otel_gpu.bpf.perf_event import CPU_CLOCK, SOFTWARE, PerfEventAttributes, open_on_each_cpu
from otel_gpu.discovery import procfs
from otel_gpu.discovery.events import Executed, ProcessEvents
from otel_gpu.discovery.instances import instance_of_process
from otel_gpu.discovery.libraries import Library
from otel_gpu.discovery.processes import Process, ProcessTable
from otel_gpu.discovery.watch import Watcher
from otel_gpu.receivers.cuda.loading import CudaPrograms
from otel_gpu.receivers.cuda.receiver import CudaReceiver
from otel_gpu.sandbox.files import MappedFile
from otel_gpu.sandbox.parsers import Parsers
from tests.e2e import comparison, ground
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import DEADLINE_S, Agent, Program
from tests.e2e.truth import Truth
from tests.stopwatch import Stopwatch
from tests.waiting import until


def _storm(*options: str) -> list[str | Path]:
    return [ground.part("programs") / "launch_storm", *options]


def _file(directory: Path) -> list[str]:
    return ["--output", f"file:{directory / 'out'}"]


def test_twenty_processes_that_start_and_exit_during_the_run_are_counted_exactly(tmp_path: Path) -> None:
    truths, running = [], []
    with Agent(_file(tmp_path), tmp_path) as agent, Program(_storm("--gate"), tmp_path) as first:
        first.ready()
        # From here on the driver's file is probed, whoever maps it.
        agent.wait_attached()
        for i in range(20):
            # Each its own number of calls, so that a mix-up of processes cannot cancel out.
            options = ("--threads", "2", "--launches", str(20_000 + i), "--memory", str(1 + i % 3))
            running.append(Program(_storm(*options), tmp_path))
            if len(running) == 5:
                truths.append(running.pop(0).finish())
        truths += [program.finish() for program in running]
        first.run_phase()
        first.finish()
        agent.stop()

    everything = read_metrics(tmp_path / "out")
    assert len({truth.pid for truth in truths}) == 20
    for truth in truths:
        comparison.assert_all(everything.of(truth.pid), truth)
    comparison.assert_nothing_lost(everything, *(truth.pid for truth in truths))


class Asked(NamedTuple):
    """What an agent exported that was asked about five programs, and what happened in each."""

    exported: Metrics
    before: Truth
    """In the program that ran before the agent, until it came."""
    late: Truth
    """In the same one, of its whole run."""
    seen: Truth
    """In the program that goes on when the agent has left, until then."""
    whole: Truth
    """In the same one, of its whole run."""
    mapping: Truth
    """In the program that maps the driver late."""
    becoming: Truth
    """In the program that becomes another one."""
    alone: Truth
    """In one that does what another does that the agent was not asked about."""
    unasked: Truth


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """Let one agent be asked about five programs."""
    directory = tmp_path_factory.mktemp("asked")
    driver = ground.own_driver(directory / "driver")
    with contextlib.ExitStack() as stack:

        def start(*command: str | Path, **environment: str) -> Program:
            return stack.enter_context(Program(command, directory, environment))

        late = start(*_storm("--gate", "--phases", "3", "--threads", "4", "--launches", "5000"))
        left = start(*_storm("--gate", "--phases", "2", "--launches", "5000"))
        then = ("--launches", "400", "--then", *_storm("--gate", "--launches", "3000"))
        becoming = start(sys.executable, ground.PROGRAMS / "ctypes_calls.py", *then)
        alone, unasked = (start(*_storm("--gate")) for _ in range(2))
        for program in (late, left, becoming, alone, unasked):
            program.ready()
        late.run_phase()
        late.ready()
        before = late.truth_now()
        options = ("--gate", "--late-dlopen", "2", "--launches", "5000", "--memory", "2")
        mapping = start(*_storm(*options), LD_LIBRARY_PATH=str(driver))
        pids = [str(program.pid) for program in (late, left, becoming, alone, mapping)]
        with Agent(["--pid", *pids, *_file(directory)], directory) as agent:
            mapping.ready()
            agent.wait_attached()
            agent.wait_attached(driver=driver)
            late.run_phase()
            late.ready()
            late.run_phase()
            left.run_phase()
            left.ready()
            seen = left.truth_now()
            mapping.run_phase()
            becoming.run_phase()
            becoming.ready()
            becoming.run_phase()
            alone.run_phase()
            unasked.run_phase()
            truths = [program.finish() for program in (late, mapping, becoming, alone, unasked)]
            agent.stop()
        left.run_phase()
        whole = left.finish()
    of_late, of_mapping, of_becoming, of_alone, of_unasked = truths
    exported = read_metrics(directory / "out")
    return Asked(exported, before, of_late, seen, whole, of_mapping, of_becoming, of_alone, of_unasked)


def test_an_agent_that_comes_late_counts_from_then_on(asked: Asked) -> None:
    assert asked.before.launches.total() == 20_000
    comparison.assert_launches(asked.exported.of(asked.late.pid), asked.late - asked.before)


def test_an_agent_that_leaves_counts_until_then_and_does_not_disturb(asked: Asked) -> None:
    assert asked.whole.launches.total() == 10_000
    assert asked.seen.launches.total() == 5_000
    comparison.assert_launches(asked.exported.of(asked.whole.pid), asked.seen)


def test_a_driver_mapped_late_is_found_before_its_first_call(asked: Asked) -> None:
    comparison.assert_all(asked.exported.of(asked.mapping.pid), asked.mapping)


def test_attachment_follows_the_mapping_within_200_ms(tmp_path: Path) -> None:
    # Timed from outside: the program prints `ready` right after it has mapped the driver.
    with Agent(_file(tmp_path), tmp_path) as agent:
        agent.wait_watching()
        with Program(_storm("--gate", "--late-dlopen", "1"), tmp_path) as program:
            program.ready()
            with Stopwatch(os.getpid(), agent.pid) as since_mapped:
                agent.wait_attached()
            assert since_mapped.seconds() < 0.2
            program.run_phase()
            truth = program.finish()
        agent.stop()

    comparison.assert_all(read_metrics(tmp_path / "out").of(truth.pid), truth)


def test_a_process_that_becomes_another_program_is_counted_as_both(asked: Asked) -> None:
    exported = asked.exported.of(asked.becoming.pid)
    by_program = {
        name: exported.where(lambda s, name=name: s.resource["service.name"] == name).total(comparison.LAUNCHES)
        for name in {s.resource["service.name"] for s in exported.samples}
    }
    assert by_program == {"ctypes_calls": 500, "launch_storm": 3000}


def test_only_the_asked_for_processes_are_counted(asked: Asked) -> None:
    comparison.assert_launches(asked.exported.of(asked.alone.pid), asked.alone)
    assert asked.unasked.launches == asked.alone.launches
    assert asked.exported.of(asked.unasked.pid).samples == []
    pids = {truth.pid for truth in (asked.late, asked.whole, asked.mapping, asked.becoming, asked.alone)}
    assert {s.resource["process.pid"] for s in asked.exported.samples if s.name == comparison.LAUNCHES} == pids


def test_a_library_is_probed_although_the_process_that_mapped_it_has_ended(tmp_path: Path) -> None:
    driver = shutil.copy(ground.part("mock") / "libcuda.so.1", tmp_path)
    seen: list[tuple[Library, MappedFile]] = []

    def on_library(process: Process, library: Library, file: MappedFile, _mapped_ns: int | None) -> None:
        if not seen:
            os.kill(process.pid, signal.SIGKILL)
            program.wait()
        seen.append((library, file))

    with subprocess.Popen(["sleep", "60"], env={**os.environ, "LD_PRELOAD": driver}) as program, Parsers() as parsers:
        watcher = Watcher(ProcessTable(), parsers, on_library, pids=(program.pid,))
        deadline = time.monotonic() + DEADLINE_S
        while not seen and time.monotonic() < deadline:
            watcher.scan()
        watcher.stop()
        receiver = CudaReceiver(ProcessTable(), parsers, CudaPrograms(map_entries=64, only=(1,)))
        placed_ns = receiver.attach(*seen[0])
        attached, _ = receiver.probes()
        receiver.close()
    assert placed_ns is not None
    assert attached > 100


def test_the_agent_ends_with_a_process_that_never_used_a_gpu(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        slow = {"OTEL_METRIC_EXPORT_INTERVAL": "60000"}
        with Agent(["--pid", str(sleeper.pid), *_file(tmp_path)], tmp_path, slow) as agent:
            agent.wait_watching()
            sleeper.kill()
            sleeper.wait()
            assert agent.wait(timeout=10) == 0


def test_a_table_too_small_keeps_the_totals_and_says_so(tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text("receivers: {cuda: {map_entries: 8}, self: {}}\n")
    command = _storm("--gate", "--threads", "4", "--launches", "10000", "--memory", "8", "--graphs", "3")
    with Program(command, tmp_path, {"MOCKCUDA_DEVICES": "2"}) as program:
        program.ready()
        arguments = ["--config", config, "--pid", str(program.pid), *_file(tmp_path)]
        with Agent(arguments, tmp_path) as agent:
            agent.wait_attached()
            program.run_phase()
            truth = program.finish()
            agent.stop()

    everything = read_metrics(tmp_path / "out")
    comparison.assert_totals(everything.of(truth.pid), truth)
    grids = everything.of(truth.pid).histogram(comparison.GRIDS)
    assert grids.sum == sum(g.sum for g in truth.grids.values())
    assert everything.by(comparison.LOST, "otel_gpu.event")["rows_full"] > 0
    # How full it is now depends on whether the program's rows are gone already; how large it is does not.
    capacity = everything.named("otel_gpu.map.capacity").by("otel_gpu.map.capacity", "bpf.map.name")
    assert capacity["rows"] == 8


def test_a_process_that_says_it_is_another_is_shown_as_what_it_is(tmp_path: Path) -> None:
    attributes = ",".join(
        (
            "service.name=trainer,team=ours,host.name=elsewhere,process.pid=1,container.id=0,telemetry.sdk.name=mine",
            *(f"own{n}={'v' * 100}" for n in range(1_000)),
        )
    )
    environment = {"OTEL_RESOURCE_ATTRIBUTES": attributes, "OTEL_SERVICE_NAME": "train\x1b[2J\ner"}
    with Program(_storm("--gate", "--launches", "100"), tmp_path, environment) as program:
        program.ready()
        config = tmp_path / "agent.yaml"
        config.write_text("discovery: {resource_attributes: {k8s.cluster.name: here, team: another}}")
        arguments = ["--config", str(config), "--pid", str(program.pid), *_file(tmp_path)]
        with Agent(
            arguments, tmp_path, {"OTEL_SERVICE_NAME": "watcher", "OTEL_RESOURCE_ATTRIBUTES": "rack=4"}
        ) as agent:
            agent.wait_attached()
            program.run_phase()
            instance = instance_of_process(program.pid, procfs.stat(program.pid).start_ticks)
            truth = program.finish()
            agent.stop()

    exported = read_metrics(tmp_path / "out")
    comparison.assert_launches(exported.of(truth.pid), truth)
    assert {s.resource["service.instance.id"] for s in exported.of(truth.pid).samples} == {instance}
    assert all(s.resource["service.name"] and s.resource["service.instance.id"] for s in exported.samples)
    (of_agent,) = {s.resource["rack"] for s in exported.samples if s.resource.get("service.name") == "watcher"}
    assert of_agent == "4"
    assert {s.resource.get("rack") for s in exported.of(truth.pid).samples} == {None}
    assert {s.resource["k8s.cluster.name"] for s in exported.of(truth.pid).samples} == {"here"}
    (resource,) = {tuple(sorted(s.resource.items())) for s in exported.of(truth.pid).samples}
    (host,) = {s.resource["host.name"] for s in exported.samples}
    assert dict(resource)["host.name"] == host == os.uname().nodename
    assert (dict(resource)["service.name"], dict(resource)["team"]) == (r"train\x1b[2J\ner", "ours")
    assert "telemetry.sdk.name" not in dict(resource)
    assert sum(len(key) + len(str(value)) for key, value in resource) < 6_000
    cuts = exported.by("otel_gpu.resource.attributes.cut", "otel_gpu.reason")
    assert cuts["reserved"] == 4
    assert cuts["too_many"] > 900
    assert agent.error_text.count("OTEL_RESOURCE_ATTRIBUTES") == 1


def test_only_selected_programs_are_exported(tmp_path: Path) -> None:
    wanted, excluded, other = (shutil.copy(_storm()[0], tmp_path / name) for name in ("wanted", "excluded", "other"))
    config = tmp_path / "agent.yaml"
    config.write_text(
        f"discovery: {{include: [{{executable: '{tmp_path}/wanted'}}, {{executable: '{tmp_path}/ex*', user: '{os.getuid()}'}}], "
        "exclude: [{command_line: '*--launches 7*'}]}"
    )
    with Agent(["--config", str(config), *_file(tmp_path)], tmp_path) as agent:
        with contextlib.ExitStack() as stack:
            programs = [
                stack.enter_context(Program([program, "--launches", launches, "--gate"], tmp_path))
                for program, launches in ((wanted, "100"), (excluded, "7"), (other, "50"))
            ]
            for program in programs:
                program.ready()
            agent.wait_attached()
            for program in programs:
                program.run_phase()
            truth, *_ = [program.finish() for program in programs]
        agent.stop()

    exported = read_metrics(tmp_path / "out")
    comparison.assert_launches(exported.of(truth.pid), truth)
    paths = {s.resource.get("process.executable.path") for s in exported.samples} - {None}
    assert paths == {str(wanted)}


def test_programs_are_heard_of_on_every_cpu_whatever_python_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    last = max(os.sched_getaffinity(0))
    assert last > 0, "a host with one CPU cannot show it"
    events = ProcessEvents()
    heard: list[object] = []
    try:
        with subprocess.Popen(["taskset", "-c", str(last), "sh", "-c", "exec sleep 0"]) as program:
            until(
                lambda: heard.extend(events.wait(0.1)) or Executed(program.pid, "sleep") in heard, timeout_s=DEADLINE_S
            )
    finally:
        events.close()


def test_every_cpu_is_sampled_whatever_python_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    events = list(open_on_each_cpu(PerfEventAttributes(type=SOFTWARE, config=CPU_CLOCK)))
    for fd in events:
        os.close(fd)

    assert len(events) == os.sysconf("SC_NPROCESSORS_ONLN")
