"""The end comes in time, whatever hangs, and the last interval is written first."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from otel_gpu import Agent, Config
from otel_gpu.bpf.linker import ObjectLinker
from otel_gpu.bpf.links import Link
from otel_gpu.bpf.ringbuf import RingReader
from otel_gpu.discovery.watch import Watcher
from otel_gpu.exporters.delivery.sender import Sender
from otel_gpu.exporters.file.settings import FileSettings
from otel_gpu.receivers.cuda.kernel_names.resolver import KernelNameResolver
from otel_gpu.receivers.cuda.receiver import CudaReceiver
from otel_gpu.receivers.nvml.receiver import NvmlReceiver
from otel_gpu.receivers.profiles.receiver import ProfileReceiver
from otel_gpu.service.agent import STOP_S
from otel_gpu.stacks.unwind.loader import UnwindLoader
from tests.e2e import ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import DEADLINE_S, Program
from tests.e2e.truth import Truth
from tests.stopwatch import Stopwatch
from tests.waiting import until

_STORM = ("--gate", "--threads", "2", "--launches", "3000", "--phases")
_CONFIG = """
receivers: {{cuda: {{}}, nvml: {{}}, profile: {{types: [launch]}}}}
exporters: {{file: {{path: {out}}}, otlp: {{endpoint: "http://127.0.0.1:{port}", timeout: 30s}}}}
service: {{interval: 300ms}}
"""
_SHORT_S = 4.0
"""A stop in a test: its steps have the same shares of the time as those of `STOP_S`."""
_SLACK_S = 1.5
"""A busy host may be late to notice."""
Method = tuple[type, str]
_AT_START: set[Method] = {(NvmlReceiver, "open"), (UnwindLoader, "_load"), (KernelNameResolver, "_look")}


class Hangs:
    """Methods that hang from when the event is set until the context ends; those that have work at the start, from then."""

    def __init__(self, methods: Sequence[Method], monkeypatch: pytest.MonkeyPatch) -> None:
        self.begin = threading.Event()
        self.hung: set[Method] = set()
        self._let_go = threading.Event()
        for owner, name in methods:
            monkeypatch.setattr(owner, name, self._hanging(owner, name))

    def _hanging(self, owner: type, name: str) -> Callable[..., Any]:
        method = getattr(owner, name)

        def hanging(*arguments: Any, **more: Any) -> Any:
            if self.begin.is_set() or (owner, name) in _AT_START:
                self.hung.add((owner, name))
                self._let_go.wait(DEADLINE_S)
            return method(*arguments, **more)

        return hanging

    def __enter__(self) -> Hangs:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._let_go.set()


def _storm(phases: int) -> list[str | Path]:
    return [ground.part("programs") / "launch_storm", *_STORM, str(phases)]


def _run_phase(program: Program) -> None:
    program.run_phase()
    program.ready()


def _observed(directory: Path, during: Callable[[Program], None], timeout_s: float, phases: int) -> tuple[Truth, float]:
    """Run a program under an agent, which is stopped before the last phase; do something after the first one.

    Return what the program had done by then, and how long the stop took.
    """
    config = directory / "agent.yaml"
    config.write_text(_CONFIG.format(out=directory / "out", port=9))
    with Program(_storm(phases), directory) as program:
        program.ready()
        agent = Agent(Config.load(config, environ={}, pids=(program.pid,)))
        agent.start()
        _run_phase(program)
        during(program)
        truth = program.truth_now()
        with Stopwatch() as stop:
            agent.stop(timeout_s)
        program.go()
        program.finish()
    return truth, stop.seconds()


_AT_WORK = (
    (UnwindLoader, "_load"),
    (RingReader, "_read"),
    (NvmlReceiver, "open"),
    (Sender, "_attempt"),
)


@pytest.mark.parametrize(
    "methods, timeout_s",
    (
        pytest.param(_AT_WORK, STOP_S, id="threads at their work, in the time of a service"),
        pytest.param([(KernelNameResolver, "_look")], _SHORT_S, id="names"),
        pytest.param([(Watcher, "_handle")], _SHORT_S, id="discovery"),
        pytest.param([(Watcher, "stop")], _SHORT_S, id="the end of discovery"),
        pytest.param([(KernelNameResolver, "settle")], _SHORT_S, id="the wait for names"),
        pytest.param([(ProfileReceiver, "profiles")], _SHORT_S, id="profiles"),
        pytest.param([(ProfileReceiver, "close"), (CudaReceiver, "close")], _SHORT_S, id="releases"),
    ),
)
def test_the_last_interval_is_written_in_time_whatever_hangs(
    methods: Sequence[Method], timeout_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def during(program: Program) -> None:
        hangs.begin.set()
        _run_phase(program)

    # Of a driver that an earlier agent has seen, names are known as a kernel is launched: nobody looks for them.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Hangs(methods, monkeypatch) as hangs:
        truth, took_s = _observed(tmp_path, during, timeout_s, phases=3)

    assert took_s < timeout_s + _SLACK_S
    assert read_metrics(tmp_path / "out").of(truth.pid).total("gpu.cuda.kernel.launch.calls") == truth.launches.total()
    assert hangs.hung == set(methods)


def test_what_was_read_before_is_written_when_reading_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def during(program: Program) -> None:
        until(lambda: read_metrics(tmp_path / "out").of(program.pid).total("gpu.cuda.kernel.launch.calls"))
        hangs.begin.set()

    with Hangs([(CudaReceiver, "collect")], monkeypatch) as hangs:
        truth, took_s = _observed(tmp_path, during, _SHORT_S, phases=2)

    assert took_s < _SHORT_S + _SLACK_S
    assert read_metrics(tmp_path / "out").of(truth.pid).total("gpu.cuda.kernel.launch.calls") == truth.launches.total()
    assert hangs.hung


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


def test_commands_that_cannot_stop_are_ended_and_say_where_they_hang(tmp_path: Path) -> None:
    """One hangs as it stops, one while it starts; both are told to stop at once."""
    stopping = _hanging_command("otel_gpu.service.agent", "Agent", "stop", tmp_path / "stopping")
    starting = _hanging_command("otel_gpu.discovery.watch", "Watcher", "scan", tmp_path / "starting")
    with (
        _running(stopping, "observing") as first,
        _running(starting, "hanging") as second,
        Stopwatch(first.pid, second.pid) as end,
    ):
        for process in (first, second):
            process.send_signal(signal.SIGTERM)
        said = [process.communicate(timeout=DEADLINE_S)[1] for process in (first, second)]

    assert (first.returncode, second.returncode) == (1, 1)
    assert "otel-gpu: not stopped after 9 s; ended without waiting for otel_gpu.cli.run.run in MainThread" in said[0]
    assert "otel_gpu.service.observation.watch in MainThread" in said[1]
    assert end.seconds() < 10


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
        with Program(_storm(2), tmp_path, environment) as program:
            program.ready()
            assert begun.wait(DEADLINE_S)
            is_complete = agent.stop()

    assert is_complete


def test_probes_that_the_kernel_is_slow_to_take_away_do_not_hold_up_the_end(tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(f"receivers: {{cuda: {{link: perf}}}}\nexporters: {{file: {{path: {tmp_path / 'out'}}}}}\n")
    with Program(_storm(2), tmp_path) as program:
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
