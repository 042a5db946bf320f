"""The end comes in time, whatever hangs, and the last interval is written first."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_gpu import Agent, Config
from otel_gpu.bpf.linker import ObjectLinker
from otel_gpu.bpf.links import Link
from otel_gpu.bpf.ringbuf import RingReader
from otel_gpu.discovery.watch import Watcher
from otel_gpu.exporters.delivery.sender import Sender
from otel_gpu.exporters.file.settings import FileSettings
from otel_gpu.kernel_names.resolver import KernelNameResolver
from otel_gpu.receivers.cuda.receiver import CudaReceiver
from otel_gpu.receivers.nvml.receiver import NvmlReceiver
from otel_gpu.receivers.profiles.receiver import ProfileReceiver
from otel_gpu.service.agent import STOP_S
from otel_gpu.unwind.loader import UnwindLoader
from tests.e2e import ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import DEADLINE_S, Program
from tests.e2e.truth import Truth
from tests.stopwatch import Stopwatch

_STORM = ("--gate", "--threads", "2", "--launches", "3000", "--phases", "2")
_CONFIG = """
receivers: {{cuda: {{}}, nvml: {{}}, profile: {{types: [launch]}}}}
exporters: {{file: {{path: {out}}}, otlp: {{endpoint: "http://127.0.0.1:{port}", timeout: 30s}}}}
service: {{interval: 300ms}}
"""
_SLACK_S = 1.5
"""A busy host may be late to notice."""


@contextmanager
def _hanging(owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Have a method hang from when the event is set, which is yielded, until the end."""
    let_go, hang, method = threading.Event(), threading.Event(), getattr(owner, name)

    def hanging(*arguments: Any, **more: Any) -> Any:
        if hang.is_set():
            let_go.wait(DEADLINE_S)
        return method(*arguments, **more)

    monkeypatch.setattr(owner, name, hanging)
    try:
        yield hang
    finally:
        let_go.set()


def _observed(directory: Path, during: Callable[[Program], None]) -> tuple[Truth, float]:
    """Run a phase of a program under an agent, then something else; return what was done and how long the stop took."""
    config = directory / "agent.yaml"
    config.write_text(_CONFIG.format(out=directory / "out", port=9))
    with Program([ground.part("programs") / "launch_storm", *_STORM], directory) as program:
        program.ready()
        agent = Agent(Config.load(config, environ={}, pids=(program.pid,)))
        agent.start()
        program.run_phase()
        program.ready()
        truth = program.truth_now()
        during(program)
        with Stopwatch() as stop:
            agent.stop()
        program.go()
        program.finish()
    return truth, stop.seconds()


@pytest.mark.parametrize(
    "owner, name",
    (
        (KernelNameResolver, "_look"),
        (KernelNameResolver, "settle"),
        (Watcher, "_handle"),
        (Watcher, "stop"),
        (UnwindLoader, "_load"),
        (RingReader, "_read"),
        (NvmlReceiver, "__init__"),
        (Sender, "_attempt"),
        (ProfileReceiver, "profiles"),
        (ProfileReceiver, "close"),
        (CudaReceiver, "close"),
    ),
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
def test_the_last_interval_is_written_in_time_whatever_hangs(
    owner: type, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _hanging(owner, name, monkeypatch) as hang:
        if name == "__init__":
            hang.set()
        truth, took_s = _observed(tmp_path, lambda _: hang.set())

    assert took_s < STOP_S + _SLACK_S
    assert read_metrics(tmp_path / "out").of(truth.pid).total("gpu.cuda.kernel.launch.calls") == truth.launches.total()


def test_what_was_read_before_is_written_when_reading_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def during(program: Program) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not read_metrics(tmp_path / "out").of(program.pid).total("gpu.cuda.kernel.launch.calls"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        hang.set()

    with _hanging(CudaReceiver, "collect", monkeypatch) as hang:
        truth, took_s = _observed(tmp_path, during)

    assert took_s < STOP_S + _SLACK_S
    assert read_metrics(tmp_path / "out").of(truth.pid).total("gpu.cuda.kernel.launch.calls") == truth.launches.total()


_COMMAND = """
import sys, time
from {module} import {owner}

def hang(*_, **__):
    print("hanging", file=sys.stderr, flush=True)
    time.sleep(3600)

{owner}.{name} = hang
from otel_gpu.cli import main
sys.exit(main({arguments!r}))
"""


@contextmanager
def _running(command: list[str], pattern: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command until it says something; yields it then."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            while pattern not in (line := process.stderr.readline()):
                assert line, "the command has ended"
            yield process
        finally:
            process.kill()


def _hanging_command(module: str, owner: str, name: str, directory: Path) -> list[str]:
    arguments = ["run", "--output", f"file:{directory}"]
    return [sys.executable, "-c", _COMMAND.format(module=module, owner=owner, name=name, arguments=arguments)]


def _ended(process: subprocess.Popen[str]) -> tuple[str, float]:
    """Tell a process to stop; return what it said, and after how long it was gone."""
    with Stopwatch(process.pid) as end:
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=DEADLINE_S)[1]
    return said, end.seconds()


def test_a_command_that_cannot_stop_is_ended_and_says_where_it_hangs(tmp_path: Path) -> None:
    command = _hanging_command("otel_gpu.service.agent", "Agent", "stop", tmp_path)
    with _running(command, "observing") as process:
        said, took_s = _ended(process)

    assert process.returncode == 1
    assert "otel-gpu: not stopped after 9 s; ended without waiting for otel_gpu.cli.run.run in MainThread" in said
    assert took_s < 10


def test_a_command_that_hangs_while_it_starts_is_ended_as_well(tmp_path: Path) -> None:
    command = _hanging_command("otel_gpu.discovery.watch", "Watcher", "scan", tmp_path)
    with _running(command, "hanging") as process:
        said, took_s = _ended(process)

    assert process.returncode == 1
    assert "otel_gpu.service.observation.watch in MainThread" in said
    assert took_s < 10


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT))
def test_a_second_signal_ends_without_the_stop(number: signal.Signals, tmp_path: Path) -> None:
    command = _hanging_command("otel_gpu.service.agent", "Agent", "stop", tmp_path)
    with _running(command, "observing") as process:
        process.send_signal(number)
        while "hanging" not in process.stderr.readline():
            pass
        process.send_signal(number)
        said = process.communicate(timeout=DEADLINE_S)[1]

    assert process.returncode in (-number, 128 + number)
    assert "not stopped" not in said


def test_probes_that_the_kernel_is_slow_to_place_do_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, begun = ObjectLinker.place, threading.Event()

    def slowly(*arguments: Any, **more: Any) -> Link:
        begun.set()
        time.sleep(1)
        return place(*arguments, **more)

    driver = ground.own_driver(tmp_path / "own")
    config = Config(exporters={"file": FileSettings(str(tmp_path / "out"))})
    with Agent(config) as agent:
        monkeypatch.setattr(ObjectLinker, "place", slowly)
        environment = {"LD_LIBRARY_PATH": f"{driver}:{ground.library_path()}"}
        with Program([ground.part("programs") / "launch_storm", *_STORM], tmp_path, environment) as program:
            program.ready()
            assert begun.wait(DEADLINE_S)
            is_complete = agent.stop()

    assert is_complete


def test_probes_that_the_kernel_is_slow_to_take_away_do_not_hold_up_the_end(tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(f"receivers: {{cuda: {{link: perf}}}}\nexporters: {{file: {{path: {tmp_path / 'out'}}}}}\n")
    with Program([ground.part("programs") / "launch_storm", *_STORM], tmp_path) as program:
        program.ready()
        command = [sys.executable, "-m", "otel_gpu", "run", "--config", str(config), "--pid", str(program.pid)]
        with _running(command, "observing") as process:
            program.run_phase()
            program.ready()
            truth = program.truth_now()
            _, took_s = _ended(process)
        program.go()
        program.finish()

    assert process.returncode == 0
    assert took_s < 10
    assert read_metrics(tmp_path / "out").of(truth.pid).total("gpu.cuda.kernel.launch.calls") == truth.launches.total()
