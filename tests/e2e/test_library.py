"""Other programs use the agent as a library: their exporters, their profiles, themselves."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_gpu import Agent, Config, ConfigError, OtelGpuError, Point, Recorder, meters, profiles, tracers
from otel_gpu.config import CudaSettings, Discovery, ProfileSettings
from otel_gpu.exporters import Exporter
from otel_gpu.exporters.recordings.files import SUFFIXES
from otel_gpu.profiles import Profile
from tests.e2e import ground
from tests.e2e.processes import DEADLINE_S, Program

_CALLS = "gpu.cuda.kernel.launch.calls"
_STORM = ("--gate", "--threads", "2", "--launches", "3000", "--phases", "4")


class Own(Exporter):
    def __init__(self) -> None:
        self.points: Sequence[Point] = ()
        self.profiles: list[Profile] = []

    def export_metrics(self, points: Sequence[Point]) -> None:
        self.points = points

    def export_profiles(self, profiles: Sequence[Profile]) -> None:
        self.profiles += profiles


class Broken:
    def export_metrics(self, _points: Sequence[Point]) -> None:
        raise KeyError("gone")


class OfSdk(MetricExporter):
    def __init__(self) -> None:
        super().__init__()
        self.last: MetricsData | None = None
        self.is_shut_down = False

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: object) -> MetricExportResult:
        self.last = metrics_data
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_: object) -> None:
        self.is_shut_down = True

    def total(self, name: str) -> float:
        assert self.last is not None
        return sum(
            point.value
            for resource in self.last.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        )


def _becomes(look: Callable[[], float], expected: float) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while (found := look()) != expected:
        assert time.monotonic() < deadline, f"{found} is not {expected}"
        time.sleep(0.05)


def _config(pid: int) -> Config:
    receivers = {"cuda": CudaSettings(), "profile": ProfileSettings(types=("launch",))}
    return Config(receivers=receivers, exporters={}, discovery=Discovery(pids=(pid,)))


def test_an_agent_hands_what_it_sees_to_objects_and_may_be_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    of_logs, environment = list(logging.getLogger().handlers), dict(os.environ)
    own, of_sdk = Own(), OfSdk()
    with Program([ground.part("programs") / "launch_storm", *_STORM], tmp_path) as program:
        program.ready()
        agent = Agent(_config(program.pid), exporters=[own, of_sdk, Broken()])
        counted, before = [], program.truth_now()
        for _ in range(3):
            with agent:
                with pytest.raises(OtelGpuError, match="started already"):
                    agent.start()
                program.run_phase()
                program.ready()
                launched = (after := program.truth_now()).launches.total() - before.launches.total()
                # Launches wait a while for the names of their kernels.
                _becomes(lambda: sum(p.value for p in agent.snapshot() if p.name == _CALLS), launched)
            before = after
            assert sum(p.value for p in own.points if p.name == _CALLS) == launched
            assert of_sdk.total(_CALLS) == launched
            assert sum(profile.total for profile in own.profiles) == launched
            own.profiles.clear()
            counted.append(launched)
        program.go()
        program.finish()

    assert min(counted) > 0
    assert not of_sdk.is_shut_down
    assert "KeyError: 'gone'" in caplog.text
    assert handlers == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    assert (of_logs, environment) == (list(logging.getLogger().handlers), dict(os.environ))


def test_what_is_no_exporter_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"exporters\[1\]: an object of the type int is no exporter; give an Open"):
        Agent(exporters=[Own(), 3])
    Agent(exporters=[InMemorySpanExporter()])


def test_a_program_records_another_one(tmp_path: Path) -> None:
    with Program([ground.part("programs") / "launch_storm", *_STORM], tmp_path) as program:
        program.ready()
        found = []
        recorder = Recorder(program.pid, types=("launch",))
        for _ in range(2):
            before = program.truth_now().launches.total()
            with recorder:
                program.run_phase()
                program.ready()
                found.append(recorder.stop())
            assert sum(p.total for p in found[-1]) == program.truth_now().launches.total() - before
        with recorder:
            program.run_phase()
            program.ready()
        assert sum(p.total for p in recorder.stop()) > 0
        program.go()
        program.finish()

    # A picture is not read back.
    for name in (f"all{suffix}" for suffix in SUFFIXES if suffix != ".svg"):
        profiles.write(found[0] + found[1], tmp_path / name)
        again = profiles.read(tmp_path / name)
        assert sum(p.total for p in again) == sum(p.total for p in found[0] + found[1])
    [difference] = profiles.diff(found[0], found[1])
    assert difference.total == found[1][0].total - found[0][0].total
    assert [p.total for p in profiles.diff([], profiles.merge(found[0]))] == [found[0][0].total]


_ITSELF = """
import ctypes, json, os, sys
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from otel_gpu import Agent, Config, meters
from otel_gpu.config import Discovery

cuda = ctypes.CDLL("libcuda.so.1")
device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert not cuda.cuInit(0) and not cuda.cuDeviceGet(ctypes.byref(device), 0)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) and not cuda.cuCtxSetCurrent(context)
reader = InMemoryMetricReader()
provider = MeterProvider([reader], resource=Resource({"service.name": "mine"}))
with Agent(Config(exporters={}, discovery=Discovery(pids=(os.getpid(),)))) as agent:
    meters.publish(agent, provider)
    for _ in range(100):
        assert not cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4096))
    data = reader.get_metrics_data()
[of_provider] = data.resource_metrics
metrics = {m.name: sum(p.value for p in m.data.data_points) for s in of_provider.scope_metrics for m in s.metrics}
own = [dict(p.attributes) for s in of_provider.scope_metrics for m in s.metrics for p in m.data.data_points]
print(json.dumps([metrics["gpu.cuda.memory.allocations"], of_provider.resource.attributes["service.name"],
                  any("process.pid" in attributes for attributes in own)]))
"""


def test_a_program_exports_what_it_does_itself_by_its_own_provider() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ITSELF],
        env={**os.environ, "LD_LIBRARY_PATH": ground.library_path()},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [409_600, "mine", False]


@pytest.mark.parametrize("module", [meters, tracers], ids=lambda module: module.__name__)
def test_the_example_of_a_public_module_runs(module: ModuleType) -> None:
    lines = (module.__doc__ or "").splitlines()
    example = textwrap.dedent("\n".join(line for line in lines if line.startswith("    ")))
    assert "Agent(" in example

    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
