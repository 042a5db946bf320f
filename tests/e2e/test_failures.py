"""What fails in one place of the agent costs that place only: counts stay exact whichever step raises, and whatever."""

from __future__ import annotations

import functools
import itertools
import logging
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from otel_gpu import Agent, Config
from otel_gpu.bpf.ringbuf import RingReader
from otel_gpu.exporters.fan_out import FanOut
from otel_gpu.exporters.file.exporter import FileExporter
from otel_gpu.exporters.recordings.reading import read_profiles
from otel_gpu.processors.kernel_names.processor import KernelNames
from otel_gpu.receivers.cuda.events import CudaEvents
from otel_gpu.receivers.cuda.receiver import CudaReceiver
from otel_gpu.receivers.profiles.blocked import BlockedThreads
from otel_gpu.receivers.profiles.receiver import ProfileReceiver
from otel_gpu.receivers.profiles.sums import ProfileSums
from otel_gpu.receivers.self.receiver import SelfReceiver
from otel_gpu.service.graph import Graph
from otel_gpu.signals.profiles import GPU_ALLOC_SPACE, GPU_COPY, GPU_LAUNCHES, merge
from otel_gpu.stacks.symbols.stacks import StackNamer
from tests.component_faults import ComponentFaults, Fault, of_its_own_type
from tests.e2e import ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import DEADLINE_S, Program
from tests.e2e.truth import Truth

_STORM = ("--gate", "--threads", "2", "--launches", "4000", "--memory", "5", "--phases", "4")
_CONFIG = """
receivers: {{cuda: {{}}, self: {{}}, profile: {{types: [launch, copy, alloc, wait]}}}}
processors: {{kernel_names: {{}}}}
exporters: {{file: {{path: {out}}}}}
service: {{interval: 200ms}}
"""
Step = tuple[type, str]
_OF_METRICS: tuple[Step, ...] = (
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
)
_OF_PROFILES: tuple[Step, ...] = (
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
_ERRORS: tuple[tuple[type[Exception], tuple[object, ...]], ...] = (
    (MemoryError, ()),
    (ValueError, ("text of a \x1b stranger",)),
    (OSError, (24, "Too many open files")),
)


def _errors() -> Iterator[Callable[[str], Exception]]:
    for base, arguments in itertools.cycle(_ERRORS):
        yield functools.partial(_error, base, arguments)


def _error(base: type[Exception], arguments: tuple[object, ...], name: str) -> Exception:
    return of_its_own_type(base, f"Fault in {name}", *arguments)


@dataclass(frozen=True)
class Observed:
    """What an agent exported."""

    failures: Counter[str]
    """By component."""
    profiles: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]
    """Of each program: the totals by type that were exported, and those that are true."""


@contextmanager
def _latecomer(directory: Path) -> Iterator[Program]:
    """Make a process that becomes a program of its own, on a driver of its own, once it is told to go."""
    directory.mkdir()
    own = shutil.copy(ground.part("programs") / "launch_storm", directory)
    environment = {"LD_LIBRARY_PATH": f"{ground.own_driver(directory / 'driver')}:{ground.library_path()}"}
    command = ["sh", "-c", 'read -r _; exec "$@"', "sh", own, "--gate", "--launches", "500", "--phases", "10000"]
    with Program(command, directory, environment) as program:
        yield program


def _observe(
    directory: Path, begin: Callable[[Agent], None], idle: Callable[[], set[str]], end: Callable[[], None]
) -> Observed:
    """Observe two programs, whose counts must be exact, and one that comes late and gives work to what is `idle`.

    `begin` is called before the late one comes, `end` when all programs are gone, before the agent is stopped.
    """
    config, out = directory / "agent.yaml", directory / "out"
    config.write_text(_CONFIG.format(out=out))
    storm = [ground.part("programs") / "launch_storm", *_STORM]
    with (
        Program(storm, directory) as first,
        Program(storm, directory) as second,
        _latecomer(directory / "late") as latecomer,
    ):
        programs = first, second
        for program in programs:
            program.ready()
        pids = first.pid, second.pid, latecomer.pid
        with Agent(Config.load(config, environ={}, pids=pids)) as agent:
            for _ in range(3):
                for program in programs:
                    program.run_phase()
                    program.ready()
            begin(agent)
            latecomer.go()
            latecomer.ready()
            deadline = time.monotonic() + DEADLINE_S
            while idle():
                assert time.monotonic() < deadline, f"without work: {idle()}"
                latecomer.run_phase()
                latecomer.ready()
            for program in programs:
                program.go()
            truths = [program.finish() for program in programs]
            latecomer.process.kill()
            latecomer.process.wait(DEADLINE_S)
            assert agent.wait(DEADLINE_S)
            end()

    metrics = read_metrics(out)
    for truth in truths:
        assert metrics.of(truth.pid).total("gpu.cuda.kernel.launch.calls") == truth.launches.total()
    totals: dict[int, Counter[str]] = {truth.pid: Counter() for truth in truths}
    for profile in merge(read_profiles(out / "profiles.jsonl")):
        pid = dict(profile.resource.attributes)["process.pid"]
        if pid in totals:
            totals[pid][profile.type.name] += profile.total
    failures = metrics.by("otel_gpu.component.failures", "otel_gpu.component")
    return Observed(failures, [(totals[truth.pid], _of_profiles(truth)) for truth in truths])


def _of_profiles(truth: Truth) -> dict[str, float]:
    """Return the totals that profiles of a program must have."""
    return {
        GPU_LAUNCHES.name: truth.launches.total(),
        GPU_COPY.name: truth.copied.sum,
        GPU_ALLOC_SPACE.name: truth.allocated.total(),
    }


@pytest.mark.parametrize("steps", (_OF_METRICS, _OF_PROFILES), ids=("of metrics", "of profiles"))
def test_counts_and_profiles_are_exact_whatever_step_fails(
    steps: tuple[Step, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults: dict[str, Fault] = {}
    for (owner, name), error in zip(steps, _errors()):
        step = f"{owner.__name__}.{name}"
        faults[step] = Fault(error(step))
        monkeypatch.setattr(owner, name, faults[step].into(getattr(owner, name)))

    def idle() -> set[str]:
        return {step for step, fault in faults.items() if not fault.raised}

    def end() -> None:
        for fault in faults.values():
            fault.is_over = True

    with caplog.at_level(logging.ERROR, "otel_gpu.runtime.supervision"):
        observed = _observe(tmp_path, lambda _agent: None, idle, end)

    for totals, true in observed.profiles:
        assert {kind: totals[kind] for kind in true} == true
    assert 0 < observed.failures.total() <= sum(fault.raised for fault in faults.values())
    # Each step's failure is one of a component's.
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert [step for step in faults if f"Fault in {step}" not in logged] == []


def _pool(component: str) -> str:
    """Return the name that the threads of a pool share: not all of them have work."""
    return re.sub(r" \d+$", "", component)


def _by_pool(counts: Mapping[str, float]) -> Counter[str]:
    found: Counter[str] = Counter()
    for component, count in counts.items():
        found[_pool(component)] += count
    return found


def test_counts_are_exact_whatever_component_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All components fail while a program begins under a number that is observed: then each of them has work.

    A profile may lack what its own component could not take in of a program that ended. It never has too much.
    """
    errors = _errors()
    faults = ComponentFaults(monkeypatch, lambda component: next(errors)(component))  # noqa: PLW0108 - another for each
    named: set[str] = set()

    def idle() -> set[str]:
        return named - {_pool(component) for component, raised in faults.raised().items() if raised}

    def begin(agent: Agent) -> None:
        named.update(_pool(health.component) for health in agent.health())
        faults.are_wanted.set()

    observed = _observe(tmp_path, begin, idle, faults.are_wanted.clear)

    for totals, true in observed.profiles:
        assert {kind: total for kind, total in true.items() if totals[kind] > total} == {}
    raised, failures = _by_pool(faults.raised()), _by_pool(observed.failures)
    assert {component for component, count in failures.items() if count} >= named
    assert {component: count for component, count in failures.items() if count > raised[component]} == {}
