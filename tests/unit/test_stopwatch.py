"""The stopwatch takes off the waits of the processes under test for a CPU, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.stopwatch import Stopwatch

_LOOP = "import os; os.sched_setaffinity(0, {%d})\nwhile True: pass"


@pytest.fixture
def hogs() -> Iterator[list[int]]:
    """Two processes that want the same CPU all the time."""
    cpu = min(os.sched_getaffinity(0))
    with ExitStack() as stack:
        running = [stack.enter_context(subprocess.Popen([sys.executable, "-S", "-c", _LOOP % cpu])) for _ in range(2)]
        for process in running:
            stack.callback(process.kill)
        yield [process.pid for process in running]


def test_waits_of_others_are_not_taken_off(hogs: list[int]) -> None:
    with subprocess.Popen(["sleep", "100"]) as idle:
        time.sleep(0.2)
        began, of_idle, of_hog = time.monotonic(), Stopwatch(idle.pid), Stopwatch(hogs[0])

        time.sleep(1)

        of_idle_s, of_hog_s, passed_s = of_idle.seconds(), of_hog.seconds(), time.monotonic() - began
        idle.kill()
    assert of_idle_s > 0.9 * passed_s
    assert of_hog_s < 0.8 * passed_s


def test_children_and_threads_that_end_are_looked_at_in_a_context(hogs: list[int]) -> None:
    script = f"""
import os, subprocess, sys, threading, time
os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})
def spin():
    end = time.thread_time() + 0.3
    while time.thread_time() < end: pass
thread = threading.Thread(target=spin)
thread.start()
thread.join()
time.sleep(0.2)
"""
    with subprocess.Popen(["sh", "-c", f"{sys.executable} -S -c '{script}'; true"]) as shell:
        began = time.monotonic()
        with Stopwatch(shell.pid) as watch:
            shell.wait()
        passed_s = time.monotonic() - began

    assert hogs
    assert 0.2 < watch.seconds() < 0.8 * passed_s
    assert watch.seconds() == watch.seconds()


def test_many_that_wait_side_by_side_count_as_one(hogs: list[int]) -> None:
    watch = Stopwatch(*hogs)

    time.sleep(1)

    # However many others there are, and at whatever priority: the two have not waited for longer than there was time.
    assert watch.seconds() > 0
