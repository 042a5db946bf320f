"""Which code of a program on HIP launches, copies, waits and allocates? Its profiles, against what the stand-in counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_gpu.service.recording import Recording
from otel_gpu.signals.profiles import (
    GPU_ALLOC_SPACE,
    GPU_COPY,
    GPU_INUSE_SPACE,
    GPU_LAUNCHES,
    GPU_WAIT,
    Profile,
)
from tests.e2e.processes import Program
from tests.e2e.test_hip import built  # noqa: F401

TYPES = (GPU_LAUNCHES, GPU_WAIT, GPU_COPY, GPU_ALLOC_SPACE, GPU_INUSE_SPACE)


@pytest.mark.parametrize("release", [5, 6], ids=["calls-nest", "calls-do-not-nest"])
def test_a_program_on_hip_is_recorded(release: int, built: Path, tmp_path: Path) -> None:  # noqa: F811
    truth_file = tmp_path / "truth.json"
    environment = {"LD_LIBRARY_PATH": str(built / f"rocm{release}"), "MOCKHIP_TRUTH": str(truth_file)}
    with Program([built / f"hip_calls_{release}", "2", "200"], tmp_path, environment) as program:
        program.ready()
        with Recording(program.pid, TYPES) as recorder:
            assert recorder.prepare()
            recorder.start()
            program.run_phase()
            assert program.wait() == 0
            profiles = {p.type.name: p for p in recorder.finish()}
            assert not any(recorder.losses().values())
    truth = json.loads(truth_file.read_text())

    launches = sum(k["launches"] for k in truth["kernels"].values()) + truth["graph_launches"]
    assert total(profiles[GPU_LAUNCHES.name]) == launches
    assert total(profiles[GPU_COPY.name]) == sum(c["bytes"] for c in truth["copies"].values())
    assert total(profiles[GPU_ALLOC_SPACE.name]) == sum(truth["allocated"].values())
    assert total(profiles[GPU_WAIT.name]) > 0
    stacks = {tuple(f.function for f in s.stack) for s in profiles[GPU_LAUNCHES.name].samples}
    assert any("vectoradd" in stack[0] and "hipLaunchKernel" in stack and "work" in stack for stack in stacks)
    copying = {f.function for s in profiles[GPU_COPY.name].samples for f in s.stack}
    assert {"hipMemcpy", "hipMemcpyPeerAsync", "work"} <= copying


def total(profile: Profile) -> int:
    return sum(sample.value for sample in profile.samples)
