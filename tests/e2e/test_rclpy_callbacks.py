"""Does every launch go to the callback of rclpy that asked for it? With rclpy itself, and Fast DDS below it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from otel_gpu.signals.spans import SpanKind
from tests.e2e import ground
from tests.e2e.processes import Program
from tests.e2e.requests import Following
from tests.e2e.test_callbacks import finished

_PROGRAM = ground.PROGRAMS / "rclpy_callbacks.py"


def _program(directory: Path, *arguments: str) -> Program:
    """Start it in a domain of its own, on this host alone."""
    environment = {
        "ROS_DOMAIN_ID": str(os.getpid() % 100 + 1),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "ROS_LOG_DIR": str(directory),
    }
    return Program([ground.ros2_python(), _PROGRAM, *arguments], directory, environment)


@pytest.mark.parametrize("executor", ["single", "multi"])
def test_every_launch_goes_to_its_callback(tmp_path: Path, executor: str) -> None:
    with _program(tmp_path, executor) as program:
        program.ready()
        with Following([program.pid]) as following:
            following.wait_followed()
            observed = finished(program, following, program.run_phase())
            observed.check()

            plain = [s for s in observed.callbacks if s.name == "process /plain_1"]
            assert {span.kind for span in plain} == {SpanKind.CONSUMER}
            ids = [str(dict(span.attributes)["messaging.message.id"]) for span in plain]
            assert all(re.fullmatch(r"[0-9a-f]{32}:\d+", told) for told in ids)
            assert len(set(ids)) == len(ids) == 8


def test_an_agent_that_comes_amid_a_callback_charges_what_begins_then(tmp_path: Path) -> None:
    with _program(tmp_path, "single", "late") as program:
        program.event("inside")
        with Following([program.pid]) as following:
            following.wait_followed()
            finished(program, following, program.run_phase()).check()
