from __future__ import annotations

import logging
import os
import time
from types import SimpleNamespace

import pytest

from otel_gpu.discovery import procfs
from otel_gpu.discovery.processes import Process
from otel_gpu.service.lateness import Lateness
from otel_gpu.signals import self_metrics
from otel_gpu.signals.metrics import Resource, attributes

S = 1_000_000_000
LIBRARY = SimpleNamespace(path="/x/libcuda.so.1\x1b")


def _process(pid: int = 7, start_ticks: int = -1) -> Process:
    return Process(pid, Resource(attributes({"process.executable.name": "a\nb"})), start_ticks)


def _note(process: Process, mapped_ns: int | None, placed_ns: int) -> list[float]:
    told: list[float] = []
    lateness = Lateness(told.append)
    offset = time.monotonic_ns()
    lateness.attached(process, LIBRARY, None if mapped_ns is None else offset + mapped_ns, offset + placed_ns)
    return told


def test_probes_that_were_there_before_are_not_late() -> None:
    assert _note(_process(), 5 * S, 4 * S) == []


def test_a_short_delay_is_measured_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    process = _process()

    assert _note(process, 1 * S, S + S // 2) == [0.5]
    assert caplog.text == ""
    assert not process.late


def test_a_long_delay_is_said_with_the_program_and_the_library(caplog: pytest.LogCaptureFixture) -> None:
    process = _process()

    assert _note(process, 1 * S, 21 * S) == [20]
    assert "process 7 (a\\nb) mapped /x/libcuda.so.1\\x1b 20.0 s before its probes were in place" in caplog.text
    # What it did before may have been anything.
    assert process.late


def test_a_mapping_that_nobody_heard_of_is_as_old_as_the_process_at_most(caplog: pytest.LogCaptureFixture) -> None:
    told: list[float] = []
    lateness = Lateness(told.append)
    lateness._since_ns = 0
    process = _process(os.getpid(), procfs.stat(os.getpid()).start_ticks)

    lateness.attached(process, LIBRARY, None, time.monotonic_ns() + 5 * S)

    assert told[0] >= 5
    assert "mapped /x/libcuda.so.1\\x1b up to " in caplog.text


@pytest.mark.parametrize("start_ticks", (-1, 1))
def test_of_a_program_that_was_there_before_there_is_no_delay(start_ticks: int) -> None:
    assert _note(_process(start_ticks=start_ticks), None, 5 * S) == []


def _counted(lateness: Lateness) -> dict[object, object]:
    readings = list(lateness.readings())
    assert {reading.metric for reading in readings} <= {self_metrics.PROCESSES_LATE}
    return {reading.attributes["otel_gpu.reason"]: reading.value for reading in readings}


def test_programs_with_calls_that_nobody_counted_are_counted_once() -> None:
    lateness, now = Lateness(lambda _: None), time.monotonic_ns()
    assert _counted(lateness) == {}
    older, delayed = _process(7, start_ticks=1), _process(8)

    for _ in range(2):  # two libraries
        lateness.attached(older, LIBRARY, None, now + S)
        lateness.attached(delayed, LIBRARY, now + S, now + 9 * S)
    lateness.attached(_process(9), LIBRARY, now + S, now + S + S // 2)
    lateness.attached(_process(10), LIBRARY, now + S, now)

    assert lateness.older == 1
    assert _counted(lateness) == {"before_agent": 1, "delayed": 1}


def test_many_late_programs_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    told: list[float] = []
    lateness, now = Lateness(told.append), time.monotonic_ns()

    with caplog.at_level(logging.WARNING):
        for pid in range(500):
            lateness.attached(_process(pid), LIBRARY, now, now + 9 * S)

    assert len(told) == 500
    assert len(caplog.records) == 20
