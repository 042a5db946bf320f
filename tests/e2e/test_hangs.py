"""Is a thread seen that waits during the whole recording? Such calls neither begin nor return while one looks."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import GPU_WAIT, OFF_CPU, Profile, is_truncated
from tests.e2e import ground
from tests.e2e.processes import DEADLINE_S, Program

S = 1_000_000_000
HANGS = ("waits_for_a_lock", "sleeps_for_long", "reads_nothing")


def _by_function(profile: Profile) -> Counter[str]:
    found: Counter[str] = Counter()
    for sample in profile.samples:
        assert not is_truncated(sample.stack)
        for name in {f.function for f in sample.stack}:
            found[name] += sample.value
    return found


def test_threads_that_hang_are_off_their_cpu_for_the_whole_recording(tmp_path: Path) -> None:
    with Program([sys.executable, ground.PROGRAMS / "hangs.py"], tmp_path) as program:
        program.ready()
        with Recording(program.pid, (OFF_CPU,)) as recorder:
            assert recorder.settle()
            for _ in range(2):
                began = time.monotonic_ns()
                recorder.start()
                at_least = time.monotonic_ns()
                time.sleep(0.5)
                at_least = time.monotonic_ns() - at_least
                (profile,) = recorder.finish()
                at_most = time.monotonic_ns() - began

                found = _by_function(profile)
                # The main thread waits for input.
                for name in (*HANGS, "main"):
                    assert at_least <= found[name] <= at_most


def _wait_asleep(thread: int) -> None:
    """Wait until a thread that is about to wait does so."""
    deadline = time.monotonic() + DEADLINE_S
    while Path(f"/proc/{thread}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_call_that_waits_for_the_device_counts_until_the_end(tmp_path: Path) -> None:
    slow = {"MOCKCUDA_KERNEL_RULES": "takes_5ms=3000000000"}
    with Program([sys.executable, ground.PROGRAMS / "hangs.py", "device"], tmp_path, slow) as program:
        program.ready()
        with Recording(program.pid, (GPU_WAIT,)) as recorder:
            assert recorder.settle()
            recorder.start()
            began = time.monotonic_ns()
            program.go()
            launched = program.event("waiting")["launched"]
            _wait_asleep(program.pid)
            asleep = time.monotonic_ns()
            time.sleep(0.5)
            at_least = time.monotonic_ns() - asleep
            (profile,) = recorder.finish()
            until = time.monotonic_ns()
            waiting = _by_function(profile)["waits_for_the_device"]
            assert at_least <= waiting <= until - began
            assert [s.stack[0].function for s in profile.samples] == ["cuStreamSynchronize"]

            program.event("phase")
            (rest,) = recorder.finish()
            whole = waiting + _by_function(rest)["waits_for_the_device"]

    # What was told while it went on is not told again.
    assert launched + 3 * S - asleep <= whole <= time.monotonic_ns() - began
