"""Do the programs for kernels below 5.17 count as the others do? Loaded here; on those kernels by `make test-kernels`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from otel_gpu.bpf.features import probe
from otel_gpu.config.model import Config
from otel_gpu.config.settings import Discovery
from otel_gpu.exporters.file.settings import FileSettings
from otel_gpu.receivers.cuda import loading
from otel_gpu.service.agent import Agent
from tests.e2e import comparison, ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import Program


def test_plain_loops_count_what_bpf_loop_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "probe", lambda: replace(probe(), bpf_loop=False))
    storm = [ground.part("programs") / "launch_storm", "--gate", "--threads", "4", "--launches", "10000"]
    with Program([*storm, "--memory", "8", "--graphs", "3"], tmp_path) as program:
        program.ready()
        config = Config(
            exporters={"file": FileSettings(str(tmp_path / "out"))},
            discovery=Discovery(pids=(program.pid,)),
        )
        with Agent(config) as agent:
            program.run_phase()
            truth = program.finish()
            assert agent.wait(30)
    everything = read_metrics(tmp_path / "out")

    comparison.assert_nothing_lost(everything)
    comparison.assert_all(everything.of(truth.pid), truth)
