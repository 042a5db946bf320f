"""Does memory end with its mappings where one call takes many of them away? Ranges of any length, in parts, and older ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_gpu.bpf.abi.programs import Loss
from otel_gpu.service.agent import Agent
from tests.e2e.inside import cuda_of
from tests.e2e.test_ledger import SLICE, Script, observer, start, usage

_PARTS = 500
"""Handles of one range at most: the mock driver opens a file for each."""


def _in_use(agent: Agent, script: Script) -> tuple[int, int]:
    """Return the slices of virtual memory that are in use, as the agent and as the driver count."""
    counted = usage(agent, script.program.pid)["virtual", None]
    assert counted % SLICE == 0
    return counted // SLICE, script.do(0, "used")[1] or 0


@pytest.mark.parametrize("mappings", [64, 1_000, 10_000])
def test_one_call_ends_all_mappings_of_its_range(tmp_path: Path, mappings: int) -> None:
    parts = min(mappings, _PARTS)
    with start(tmp_path) as program:
        program.ready()
        script = Script(program)
        with observer(program.pid) as agent:
            _, area = script.do(0, "reserve", mappings)
            assert script.do(0, "fill", area, 0, mappings, parts) == (0, None)
            assert _in_use(agent, script) == (parts, parts)

            # What is left over is of handles that are mapped at the end of the range.
            rest = parts // 3
            assert script.do(0, "unmap_range", area, 0, mappings - rest) == (0, None)
            assert _in_use(agent, script) == (rest, rest)

            assert script.do(0, "unmap_range", area, mappings - rest, rest) == (0, None)
            assert _in_use(agent, script) == (0, 0)
            assert not cuda_of(agent).losses()[Loss.READ_FAILED]


def test_mappings_older_than_the_agent_keep_no_later_ones(tmp_path: Path) -> None:
    with start(tmp_path) as program:
        program.ready()
        script = Script(program)
        _, area = script.do(0, "reserve", 200)
        assert script.do(0, "fill", area, 0, 100, 100) == (0, None)
        with observer(program.pid) as agent:
            assert script.do(0, "fill", area, 100, 100, 100) == (0, None)
            assert _in_use(agent, script) == (100, 200)

            assert script.do(0, "unmap_range", area, 50, 100) == (0, None)
            assert _in_use(agent, script) == (50, 100)

            for first in (0, 150):
                assert script.do(0, "unmap_range", area, first, 50) == (0, None)
            assert _in_use(agent, script) == (0, 0)
