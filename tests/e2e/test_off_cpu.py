"""Where do threads wait? The off-CPU profile against what a program says of its waits."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import OFF_CPU, is_truncated
from tests.e2e import ground
from tests.e2e.processes import Program

MS = 1_000_000


def test_waits_are_charged_to_the_function_that_waits(tmp_path: Path) -> None:
    command = [sys.executable, ground.PROGRAMS / "waits.py"]
    with Program(command, tmp_path, {"MOCKCUDA_COPY_GBPS": "0.01"}) as program:
        program.ready()
        with Recording(program.pid, (OFF_CPU,)) as recorder:
            program.run_phase()
            assert recorder.settle()
            recorder.start()

            waited = program.run_phase()["waited"]

            (profile,) = recorder.finish()
    assert isinstance(waited, dict)
    found: Counter[str] = Counter()
    for sample in profile.samples:
        assert not is_truncated(sample.stack)
        for name in {f.function for f in sample.stack} & waited.keys():
            found[name] += sample.value
    # The return of the copies is probed: another address lies in the stack then than where they will return to.
    for name in ("sleeps", "waits_for_a_thread", "reads_a_pipe", "waits_for_the_gpu"):
        # A thread that has been woken still waits for a CPU, which is no stay off it.
        assert 0.5 * waited[name] < found[name] <= 1.02 * waited[name], (name, found, waited)
    # Neither work nor what is shorter than a millisecond.
    assert found["computes"] < 50 * MS
    assert found["naps"] < 0.5 * waited["naps"]
