"""What fails in one place of the agent costs that place only: counts stay exact whichever step raises, and whatever."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_gpu import Agent, Config
from otel_gpu.bpf.ringbuf import RingReader
from otel_gpu.exporters.fan_out import FanOut
from otel_gpu.exporters.file.exporter import FileExporter
from otel_gpu.processors.kernel_names.processor import KernelNames
from otel_gpu.receivers.cuda.events import CudaEvents
from otel_gpu.receivers.cuda.receiver import CudaReceiver
from otel_gpu.receivers.profiles.blocked import BlockedThreads
from otel_gpu.receivers.profiles.receiver import ProfileReceiver
from otel_gpu.receivers.profiles.sums import ProfileSums
from otel_gpu.receivers.self.receiver import SelfReceiver
from otel_gpu.reporters.reading import read_profiles
from otel_gpu.service.graph import Graph
from otel_gpu.signals.profiles import GPU_ALLOC_SPACE, GPU_COPY, GPU_LAUNCHES, merge
from otel_gpu.symbols.stacks import StackNamer
from tests.e2e import ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import DEADLINE_S, Program

_STORM = ("--gate", "--threads", "2", "--launches", "4000", "--memory", "5", "--phases", "4")
_CONFIG = """
receivers: {{cuda: {{}}, self: {{}}, profile: {{types: [launch, copy, alloc, wait]}}}}
processors: {{kernel_names: {{}}}}
exporters: {{file: {{path: {out}}}}}
service: {{interval: 200ms}}
"""
_STEPS: tuple[tuple[type, str], ...] = (
    (Agent, "_collect"),
    (Agent, "_check_finished"),
    (CudaReceiver, "collect"),
    (CudaEvents, "handle"),
    (CudaEvents, "kernel_name"),
    (SelfReceiver, "collect"),
    (KernelNames, "metrics"),
    (Graph, "collect"),
    (Graph, "export"),
    (FileExporter, "export_metrics"),
    (RingReader, "drain"),
    (RingReader, "_gather"),
    (ProfileReceiver, "_take_in"),
    (ProfileReceiver, "_take_named"),
    (ProfileReceiver, "_going_on"),
    (ProfileReceiver, "finish"),
    (ProfileSums, "add"),
    (FanOut, "export"),
    (BlockedThreads, "waits"),
    (StackNamer, "read"),
    (StackNamer, "name"),
)
_ERRORS = (MemoryError(), ValueError("text of a \x1b stranger"), OSError(24, "Too many open files"))


class Faults:
    """Makes a method raise at its first call and at every third from then on, until they are over."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._calls = itertools.count(1)
        self.raised = 0
        self.are_over = False

    def into(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def failing(*arguments: Any, **more: Any) -> Any:
            if next(self._calls) % 3 == 1 and not self.are_over:
                self.raised += 1
                raise self._error
            return method(*arguments, **more)

        return failing


def _case(index: int, owner: type, name: str) -> object:
    error = _ERRORS[index % len(_ERRORS)]
    return pytest.param(owner, name, Faults(error), id=f"{owner.__name__}.{name} {error!r}")


@pytest.mark.parametrize("owner, name, faults", [_case(i, *step) for i, step in enumerate(_STEPS)])
def test_counts_and_profiles_are_exact_whatever_step_fails(
    owner: type, name: str, faults: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, faults.into(getattr(owner, name)))
    config, out = tmp_path / "agent.yaml", tmp_path / "out"
    config.write_text(_CONFIG.format(out=out))
    storm = [ground.part("programs") / "launch_storm", *_STORM]
    with Program(storm, tmp_path) as first, Program(storm, tmp_path) as second:
        for program in (first, second):
            program.ready()
        with Agent(Config.load(config, environ={}, pids=(first.pid, second.pid))) as agent:
            for _ in range(3):
                for program in (first, second):
                    program.run_phase()
                    program.ready()
            deadline = time.monotonic() + DEADLINE_S
            while not faults.raised:
                assert time.monotonic() < deadline, f"{owner.__name__}.{name} was not called"
                time.sleep(0.05)
            for program in (first, second):
                program.go()
            truths = [p.finish() for p in (first, second)]
            assert agent.wait(DEADLINE_S)
            faults.are_over = True

    metrics, profiles = read_metrics(out), merge(read_profiles(out / "profiles.jsonl"))
    for truth in truths:
        assert metrics.of(truth.pid).total("gpu.cuda.kernel.launch.calls") == truth.launches.total()
        of_program = [p for p in profiles if dict(p.resource.attributes)["process.pid"] == truth.pid]
        totals = {p.type.name: p.total for p in of_program}
        assert totals[GPU_LAUNCHES.name] == truth.launches.total()
        assert totals[GPU_COPY.name] == truth.copied.sum
        assert totals[GPU_ALLOC_SPACE.name] == truth.allocated.total()
    failures = metrics.by("otel_gpu.component.failures", "otel_gpu.component")
    assert 0 < failures.total() <= faults.raised
