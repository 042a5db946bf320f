"""A pipeline carries what its receivers give through its processors to its exporters, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e import ground
from tests.e2e.exported import Metrics, read_metrics
from tests.e2e.processes import Agent, Program

_CALLS = "gpu.cuda.kernel.launch.calls"
_NAME = "cuda.kernel.name"
_STORM = ("--gate", "--threads", "2", "--launches", "3000")


def _names(exported: Metrics) -> set[str]:
    return {sample.name for sample in exported.samples}


def test_every_pipeline_carries_what_it_is_to_carry(tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(
        json.dumps(
            {
                "receivers": {"cuda": {}, "self": {}},
                "processors": {"kernel_names": {}, "kernel_names/few": {"top": 1, "demangle": "short"}},
                "exporters": {
                    f"file/{name}": {"path": str(tmp_path / name)} for name in ("raw", "few", "agent", "both")
                },
                "service": {
                    "pipelines": {
                        "metrics/raw": {
                            "receivers": ["cuda"],
                            "processors": [],
                            "exporters": ["file/raw", "file/both"],
                        },
                        "metrics/few": {
                            "receivers": ["cuda"],
                            "processors": ["kernel_names/few"],
                            "exporters": ["file/few"],
                        },
                        "metrics/agent": {"receivers": ["self"], "exporters": ["file/agent", "file/both"]},
                    }
                },
            }
        )
    )
    with Program([ground.part("programs") / "launch_storm", *_STORM], tmp_path) as program:
        program.ready()
        with Agent(["--config", config, "--pid", str(program.pid)], tmp_path) as agent:
            agent.wait_attached()
            program.run_phase()
            truth = program.finish()
            agent.wait()

    raw, few, own, both = (read_metrics(tmp_path / name) for name in ("raw", "few", "agent", "both"))
    # Their names were told before the agent came: handles stand for them.
    assert sorted(raw.of(truth.pid).by(_CALLS, _NAME).values()) == sorted(truth.launches.values())
    kept = few.of(truth.pid).by(_CALLS, _NAME)
    assert len(kept) == 2
    assert "other" in kept
    for exported in (raw, few, both):
        assert exported.of(truth.pid).total(_CALLS) == truth.launches.total()
    assert {name.partition(".")[0] for name in _names(raw) | _names(few)} == {"gpu"}
    assert "otel_gpu.probes" in _names(own)
    assert _CALLS not in _names(own)
    assert _names(both) == _names(raw) | _names(own)


def test_processes_that_nothing_tells_apart_are_added_up_exactly(tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    apart = ("service.instance.id", "process.pid", "process.parent_pid")
    deleted = [{"key": key, "action": "delete"} for key in apart]
    config.write_text(
        json.dumps(
            {
                "receivers": {"cuda": {}},
                "processors": {"resource": {"attributes": deleted}},
                "exporters": {"file": {"path": str(tmp_path / "out")}},
                "service": {
                    "interval": "200ms",
                    "pipelines": {
                        "metrics": {"receivers": ["cuda"], "processors": ["resource"], "exporters": ["file"]}
                    },
                },
            }
        )
    )
    storm = [ground.part("programs") / "launch_storm", *_STORM]
    with Program(storm, tmp_path) as one, Program(storm, tmp_path) as two:
        one.ready()
        two.ready()
        with Agent(["--config", config, "--pid", str(one.pid), str(two.pid)], tmp_path) as agent:
            agent.wait_attached()
            one.run_phase()
            launches = one.finish().launches.total()
            two.run_phase()
            launches += two.finish().launches.total()
            agent.wait()

    calls = read_metrics(tmp_path / "out").named(_CALLS)
    resource = calls.samples[0].resource
    assert all(sample.resource == resource for sample in calls.samples)
    assert "process.pid" not in resource
    # A kernel's series may have ended with the first, and begun again: both count.
    assert calls.total(_CALLS) == launches
