"""What is to hold for months holds a few times: `python -m bench.attachments`, `bench.hogs`, `bench.kills`, `bench.short_lives`, `bench.cold_names` and `bench.soak`, cut short."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.attachments import cycles
from bench.ground import ROOT
from bench.kills import kills
from tests.e2e import ground

_STORM_MINUTES = 0.05
_DEADLINE_S = 300


@pytest.fixture(autouse=True)
def _driver() -> None:
    ground.part("mock")


def test_probes_come_and_go_under_a_program_that_launches() -> None:
    done = cycles(5)

    assert list(done.faults()) == []
    assert done.launched == 500
    assert done.meanwhile > 0


def test_nothing_is_left_of_an_agent_that_is_killed_and_the_next_counts_everything() -> None:
    done = kills(2, seed=1)

    assert list(done.faults()) == []
    assert done.probes > 0
    assert done.meanwhile > 0


def test_programs_that_live_for_a_moment_are_counted_to_the_last_launch() -> None:
    command = [sys.executable, "-m", "bench.short_lives", "--programs", "60"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 programs" in done.stdout


def test_kernels_of_programs_that_crowd_a_host_have_their_names() -> None:
    command = [sys.executable, "-m", "bench.cold_names", "--programs", "60", "--early", "20"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2,240 of 2,240 launches counted, 2,240 named" in done.stdout


def test_a_hog_and_its_neighbour_are_counted_to_the_last_launch() -> None:
    command = [sys.executable, "-m", "bench.hogs", "--times", "2000", "shapes"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2,000 of 2,000 launches counted" in done.stdout


def test_nothing_is_left_of_a_storm() -> None:
    command = [sys.executable, "-m", "bench.soak", "--minutes", str(_STORM_MINUTES), "--every", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "rounds of programs" in done.stdout
