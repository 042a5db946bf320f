"""In a control group with little memory the agent has smaller tables, and counts as exactly."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.ground import ROOT, UnavailableError
from bench.memory import stay
from bench.memory_group import memory_group
from tests.e2e import ground


@pytest.mark.parametrize("limit_mb, profiles", [(150, False), (200, False), (250, True), (300, True)])
def test_launches_are_exact_with_little_memory(limit_mb: int, profiles: bool) -> None:
    ground.part("mock")
    try:
        done = stay(limit_mb, profiles=profiles)
    except UnavailableError as e:
        pytest.skip(str(e))

    assert done.counted == 10_000, done.log
    assert "of their usual size" in done.log
    assert done.peak_bytes <= limit_mb * 1_000_000


def test_too_little_memory_is_said_before_it_is_the_end() -> None:
    ground.part("mock")
    try:
        done = stay(64, profiles=False)
    except UnavailableError as e:
        pytest.skip(str(e))

    assert "the control group of this process allows" in done.log
    assert "raise the limit" in done.log


_LARGE = """
import logging
from otel_gpu.bpf.object import BpfObject
logging.basicConfig()
with BpfObject("profile") as loaded:
    loaded.configure_map("unwind_rows", max_entries=1 << 27)
    loaded.load(attach_type=lambda _: None)
    print(loaded.map("unwind_rows").max_entries)
"""


def test_tables_for_which_there_is_no_memory_are_made_smaller() -> None:
    try:
        with memory_group(200_000_000) as group:
            done = subprocess.run(
                group.entering(sys.executable, "-c", _LARGE), cwd=ROOT, capture_output=True, text=True, check=False
            )
    except UnavailableError as e:
        pytest.skip(str(e))

    assert done.returncode == 0, done.stderr
    assert 1 << 22 <= int(done.stdout) <= 1 << 25
    assert "no memory for the tables of profile: tried again with 1/" in done.stderr
