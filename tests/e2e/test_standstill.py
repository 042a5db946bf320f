"""An agent that stood still: what was counted is right, and what was missed is said."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.e2e import ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import Agent, Program

_STORM = ("--gate", "--threads", "2", "--launches", "1000", "--phases", "2")
_CALLS = "gpu.cuda.kernel.launch.calls"


def test_a_library_that_was_mapped_while_the_agent_stood_still_is_said_to_be_late(tmp_path: Path) -> None:
    own = ground.own_driver(tmp_path / "own")
    storm = [ground.part("programs") / "launch_storm", *_STORM]
    elsewhere = {"LD_LIBRARY_PATH": f"{own}:{ground.library_path()}"}
    with (
        Program(storm, tmp_path) as early,
        Program([*storm, "--late-dlopen", "2"], tmp_path, elsewhere) as late,
    ):
        late.process.send_signal(signal.SIGSTOP)
        early.ready()
        assert str(own) not in Path(f"/proc/{late.pid}/maps").read_text()
        arguments = ["--pid", str(early.pid), str(late.pid), "--output", f"file:{tmp_path / 'out'}"]
        with Agent(arguments, tmp_path) as agent:
            agent.wait_attached()
            agent.process.send_signal(signal.SIGSTOP)
            late.process.send_signal(signal.SIGCONT)
            late.ready()
            mapped = time.monotonic()
            for program in (early, late):
                program.run_phase()
                program.ready() if program is late else None
            missed = late.truth_now()
            # Longer than any attachment takes.
            time.sleep(max(0.0, mapped + 2 - time.monotonic()))
            stood_still_s = time.monotonic() - mapped
            agent.process.send_signal(signal.SIGCONT)
            line = agent.wait_for("before its probes were in place")
            early.ready()
            for program in (early, late):
                program.run_phase()
            truths = [program.finish() for program in (early, late)]
            assert agent.wait() == 0, agent.error_text

    metrics = read_metrics(tmp_path / "out")
    assert f"process {late.pid} (launch_storm) mapped {own}/libcuda.so.1 " in line
    assert float(line.split(" s before")[0].rsplit(" ", 1)[1]) >= stood_still_s
    assert metrics.of(early.pid).total(_CALLS) == truths[0].launches.total() == 4000
    assert metrics.of(late.pid).total(_CALLS) == (truths[1] - missed).launches.total() == 2000
    delay = metrics.named("otel_gpu.attach.delay").samples[0].histogram
    assert delay.count == 1
    assert delay.sum >= stood_still_s
    assert "1 of them was there before: what was called until now is in no count" in agent.error_text
    assert metrics.by("otel_gpu.processes.late", "otel_gpu.reason") == {"before_agent": 1, "delayed": 1}


def test_how_late_probes_come_is_measured(tmp_path: Path) -> None:
    with Agent(["--output", f"file:{tmp_path / 'out'}"], tmp_path) as agent:
        agent.wait_watching()
        own = ground.own_driver(tmp_path / "own")
        storm = [ground.part("programs") / "launch_storm", "--gate", "--launches", "1000"]
        with Program(storm, tmp_path, {"LD_LIBRARY_PATH": f"{own}:{ground.library_path()}"}) as program:
            program.ready()
            agent.wait_for(rf"attached \d+ probes to {own}")
            program.run_phase()
            truth = program.finish()
        agent.stop()

    metrics = read_metrics(tmp_path / "out")
    assert metrics.of(truth.pid).total(_CALLS) == 1000
    assert metrics.named("otel_gpu.attach.delay").samples[0].histogram.count >= 1
