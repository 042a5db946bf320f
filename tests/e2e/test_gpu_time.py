"""Whose work kept the GPU busy? What is said of each call site against what its work took on the mock driver's clock."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from otel_gpu.exporters.recordings.reading import read_profiles
from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import GPU_TIMES, Profile, merge
from tests.e2e import ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import Agent, Program

CLOCK = {"MOCKCUDA_KERNEL_RULES": "takes_50us=50000,takes_500us=500000,takes_5ms=5000000"}
WAYS = ("alternating", "mixed", "at_once", "graphs", "busy_loop", "never_waiting")


@dataclass(frozen=True)
class Told:
    took: dict[str, int]
    """What each site's work took."""
    totals: dict[str, int]
    sites: dict[str, Counter[str]]
    """By profile type and site."""

    def of(self, kind: str, site: str) -> int:
        return self.sites.get(f"gpu_time_{kind}", Counter())[site]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """Record all ways at once; one after another has work to do."""
    directory = tmp_path_factory.mktemp("ways")
    took: dict[str, dict[str, int]] = {}
    with ExitStack() as running:
        programs = {
            way: running.enter_context(
                Program([sys.executable, ground.PROGRAMS / "busy_sites.py", way], directory, CLOCK)
            )
            for way in WAYS
        }
        for program in programs.values():
            program.ready()
        with Recording([program.pid for program in programs.values()], GPU_TIMES) as recorder:
            assert recorder.settle()
            recorder.start()
            for way, program in programs.items():
                sites = program.run_phase()["sites"]
                assert isinstance(sites, dict)
                took[way] = sites
            profiles = recorder.finish()
            assert not any(recorder.losses().values())
    return {way: _told(way, took[way], [p for p in profiles if _pid(p) == programs[way].pid]) for way in WAYS}


def _pid(profile: Profile) -> object:
    return dict(profile.resource.attributes)["process.pid"]


def _told(way: str, took: dict[str, int], profiles: Sequence[Profile]) -> Told:
    sites: dict[str, Counter[str]] = {}
    for profile in profiles:
        found = sites[profile.type.name] = Counter()
        for sample in profile.samples:
            for name in {f.function for f in sample.stack} & took.keys():
                found[name] += sample.value
    told = Told(took, {p.type.name: p.total for p in profiles}, sites)
    for site, ns in took.items():
        at_least, share, at_most = (told.of(kind, site) / 1e6 for kind in ("at_least", "upper", "at_most"))
        print(f"{way}, {site}: {at_least:.1f} <= {ns / 1e6:.1f} <= {at_most:.1f} ms, estimate {share:.1f}")
    return told


@pytest.mark.parametrize("way", WAYS)
def test_what_a_site_took_lies_between_its_bounds(way: str, told: dict[str, Told]) -> None:
    run = told[way]

    for site, took in run.took.items():
        assert run.of("at_least", site) <= took <= run.of("at_most", site)


@pytest.mark.parametrize("way", WAYS)
def test_sites_share_the_time_of_the_device(way: str, told: dict[str, Told]) -> None:
    run = told[way]

    assert run.totals.get("gpu_time_lower", 0) <= run.totals["gpu_time_upper"] <= run.totals["gpu_time_at_most"]
    assert run.totals.get("gpu_time_at_least", 0) <= run.totals.get("gpu_time_lower", 0)


@pytest.mark.parametrize("way", ["alternating", "mixed"])
def test_few_long_kernels_outweigh_many_short_ones(way: str, told: dict[str, Told]) -> None:
    # Of the launches nine in ten are the quick site's.
    run = told[way]

    assert run.of("lower", "slow_site") > 0.7 * run.totals["gpu_time_lower"]
    assert run.of("upper", "slow_site") > 0.5 * run.totals["gpu_time_upper"]


def test_busy_periods_of_one_site_tell_how_long_it_took(told: dict[str, Told]) -> None:
    # Also those of which no stack was taken.
    run = told["alternating"]
    lower, upper = run.totals["gpu_time_lower"], run.totals["gpu_time_upper"]

    assert sum(run.of("at_most", site) for site in run.took) < 1.1 * upper
    assert run.totals["gpu_time_at_least"] > 0.9 * lower


def test_the_agents_profiles_have_the_time_of_its_metrics(tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text("receivers: {cuda: {}, self: {}, profile: {types: [gputime]}}\nservice: {interval: 500ms}\n")
    command = [sys.executable, ground.PROGRAMS / "busy_sites.py", "alternating", "2"]
    with Program(command, tmp_path, CLOCK) as program:
        program.ready()
        out = tmp_path / "out"
        arguments = ["--config", config, "--pid", program.pid, "--output", f"file:{out}"]
        with Agent([str(a) for a in arguments], tmp_path) as agent:
            agent.wait_attached()
            program.run_phase()
            program.run_phase()
            program.finish()
            assert agent.wait() == 0, agent.error_text

    totals = {p.type.name: p.total for p in merge(read_profiles(out / "profiles.jsonl"))}
    for bound in ("lower", "upper"):
        metric = sum(
            s.value
            for s in read_metrics(out).named("gpu.cuda.busy.time").samples
            if s.attributes["otel_gpu.bound"] == bound
        )
        assert totals[f"gpu_time_{bound}"] == pytest.approx(metric * 1e9, rel=1e-6)
