"""Does the time that devices really worked always lie between the bounds? The mock driver's clock knows it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import GPU_TIME_LOWER, GPU_TIME_UPPER, FrameKind
from tests.e2e import comparison, ground
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program

BUSY, IDLE, ELAPSED = "gpu.cuda.busy.time", "gpu.cuda.idle.duration", "gpu.cuda.event.elapsed.time"
CLOCK = {
    "MOCKCUDA_KERNEL_RULES": "takes_5us=5000,takes_50us=50000,takes_500us=500000,takes_5ms=5000000",
    "MOCKCUDA_COPY_GBPS": "10",
}
MIXES: dict[str, tuple[int, str]] = {
    **{f"one thread, seed {seed}": (1, f"--seed {seed} --rounds 400") for seed in range(8)},
    **{f"{n} threads, seed {n}": (1, f"--threads {n} --seed {n} --rounds 150") for n in (2, 3, 5)},
    "more streams than places": (1, "--threads 12 --seed 12 --rounds 40"),
    "two devices, one thread": (2, "--seed 21 --rounds 300"),
    "two devices, four threads": (2, "--threads 4 --seed 22 --rounds 100"),
    "work that waits for the host": (1, "--seed 23 --rounds 300 --hold"),
}
"""Name -> devices, options."""
BATCHES = {f"{kernel} by {n}": (kernel, n) for kernel, n in (("takes_5us", 1), ("takes_50us", 10), ("takes_5ms", 1))}
ROUNDS = 50


@dataclass(frozen=True)
class Run:
    truth_s: list[float]
    """By device."""
    exported: Metrics
    phase: dict[str, object]
    """What the program said at its end."""

    def bounds_s(self, device: int) -> tuple[float, float]:
        bounds: Counter[str] = Counter()
        for sample in self.exported.named(BUSY).samples:
            if sample.attributes.get("cuda.device.index") == device:
                bounds[str(sample.attributes["otel_gpu.bound"])] += sample.value
        return bounds["lower"], bounds["upper"]


def _observe(commands: dict[str, tuple[int, str]], directory: Path) -> dict[str, Run]:
    """Run programs one after the other, under one agent."""
    program = ground.part("programs") / "busy_mix"
    running: dict[str, Program] = {}
    raw: dict[str, dict[str, object]] = {}
    phases: dict[str, dict[str, object]] = {}
    try:
        for name, (devices, options) in commands.items():
            environment = {**CLOCK, "MOCKCUDA_DEVICES": str(devices)}
            running[name] = Program([program, *options.split()], directory, environment)
            running[name].ready()
        pids = [word for p in running.values() for word in ("--pid", str(p.pid))]
        with Agent([*pids, "--output", f"file:{directory / 'out'}"], directory) as agent:
            agent.wait_attached()
            for name, p in running.items():
                phases[name] = p.run_phase(timeout=120)
                p.finish()
                raw[name] = json.loads((directory / f"truth-{p.pid}.json").read_text())
            agent.stop()
    finally:
        for p in running.values():
            p.__exit__(None, None, None)  # those that a failure left waiting
    everything = read_metrics(directory / "out")
    comparison.assert_nothing_lost(everything)
    return {
        name: Run([ns / 1e9 for ns in raw[name]["device_busy_ns"]], everything.of(p.pid), phases[name])
        for name, p in running.items()
    }


@pytest.fixture(scope="module")
def mixes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return _observe(MIXES, tmp_path_factory.mktemp("mixes"))


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    commands = {name: (1, f"--batch {k}:{n} --rounds {ROUNDS}") for name, (k, n) in BATCHES.items()}
    commands |= {f"{name}, polled": (1, f"{options} --poll") for name, (_, options) in list(commands.items())}
    return _observe(commands, tmp_path_factory.mktemp("batches"))


@pytest.mark.parametrize("name", MIXES)
def test_the_truth_lies_between_the_bounds(name: str, mixes: dict[str, Run]) -> None:
    run = mixes[name]

    for device, truth in enumerate(run.truth_s):
        lower, upper = run.bounds_s(device)
        print(f"{name}, device {device}: {lower:.4f} <= {truth:.4f} <= {upper:.4f} s")
        assert truth > 0
        assert lower <= truth <= upper


@pytest.mark.parametrize("name", [*BATCHES, *(f"{name}, polled" for name in BATCHES)])
def test_batches_are_bounded_and_gaps_between_them_are_seen(name: str, batches: dict[str, Run]) -> None:
    run = batches[name]

    lower, upper = run.bounds_s(0)
    (truth,) = run.truth_s
    idle = run.exported.histogram(IDLE)
    print(f"{name}: {lower:.4f} <= {truth:.4f} <= {upper:.4f} s, {idle.count} gaps of {idle.sum:.4f} s")
    assert lower <= truth <= upper
    assert idle.count == ROUNDS - 1
    assert idle.sum >= (ROUNDS - 1) * 100e-6


def test_a_long_batch_is_known_closely(batches: dict[str, Run]) -> None:
    # As closely as the program itself could know it: it may have had no CPU when its work was done.
    for name in ("takes_5ms by 1", "takes_5ms by 1, polled"):
        lower, upper = batches[name].bounds_s(0)
        seen, apart = float(batches[name].phase["seen_s"]), float(batches[name].phase["apart_s"])
        print(f"{name}: {seen:.4f} ~ {lower:.4f} <= {batches[name].truth_s[0]:.4f} <= {upper:.4f} ~ {apart:.4f} s")
        assert lower >= 0.8 * seen
        assert upper <= apart


def test_times_between_events_are_what_the_program_was_told(mixes: dict[str, Run]) -> None:
    elapsed = mixes["one thread, seed 0"].exported.histogram(ELAPSED)

    assert elapsed.count > 5
    assert elapsed.sum > 0


def test_a_recording_splits_what_lies_between_the_bounds(tmp_path: Path) -> None:
    program = ground.part("programs") / "busy_mix"
    with Program([program, "--batch", "takes_500us:10", "--rounds", "100"], tmp_path, CLOCK) as observed:
        observed.ready()
        with Recording(observed.pid, (GPU_TIME_UPPER, GPU_TIME_LOWER)) as recorder:
            recorder.start()
            observed.run_phase()
            profiles = {p.type.name: p for p in recorder.finish()}
        observed.finish()
    truth_ns = sum(json.loads((tmp_path / f"truth-{observed.pid}.json").read_text())["device_busy_ns"])

    assert 0 < profiles["gpu_time_lower"].total <= truth_ns <= profiles["gpu_time_upper"].total
    # What was launched behind the last stack of a thread stands under a marker.
    by_kernel = sum(s.value for s in profiles["gpu_time_upper"].samples if s.stack[0].kind is FrameKind.CUDA)
    assert by_kernel > profiles["gpu_time_upper"].total / 2
