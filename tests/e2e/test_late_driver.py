"""Is all of it there when the driver and NVML are installed after the agent has started?"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from tests.e2e import comparison, ground
from tests.e2e.exported import read_metrics
from tests.e2e.processes import DEADLINE_S, Agent, Program
from tests.e2e.test_devices import MODEL, SETTLE_S, UUIDS, _holder


def lines(out: Path) -> list[str]:
    """Return what was exported, an interval a line."""
    return (out / "metrics.jsonl").read_text().splitlines()


def test_a_driver_that_is_installed_later_has_everything(tmp_path: Path) -> None:
    library = tmp_path / "library"
    (tmp_path / "state").mkdir()
    (tmp_path / "control").write_text("")
    environment = {
        "MOCKCUDA_DEVICES": "2",
        "MOCKCUDA_STATE": str(tmp_path / "state"),
        "MOCKNVML_CONTROL": str(tmp_path / "control"),
        # It does not exist yet, so the linker will not look there a second time.
        "LD_LIBRARY_PATH": str(library),
    }
    out = tmp_path / "out"
    with Agent(["--output", f"file:{out}"], tmp_path, environment) as agent:
        agent.wait_for("no hardware metrics until NVML answers")
        agent.wait_watching()
        shutil.copytree(
            ground.part("mock"), tmp_path / "new", ignore=lambda _, names: [n for n in names if ".so" not in n]
        )
        (tmp_path / "new").rename(library)
        agent.wait_for("hardware metrics from now on")
        # What the first program did before the driver was known is in no count.
        for _ in range(2):
            with Program(_holder(1, asks=False), tmp_path, environment) as program:
                program.ready()
                agent.wait_attached(driver=library)
                time.sleep(SETTLE_S)
                program.run_phase()
                program.go()
                program.finish()
        answered = read_metrics(out).named("hw.temperature").samples
        assert len(answered) == 2
        (tmp_path / "control").write_text("MOCKNVML_ANSWERS=999\n")
        deadline = time.monotonic() + DEADLINE_S
        before = lines(out)
        while len(lines(out)) < len(before) + 6:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        agent.stop()

    exported = read_metrics(out).of(program.pid)
    seen = {
        (s.attributes.get("cuda.device.uuid"), s.attributes.get("cuda.device.model"))
        for s in exported.named(comparison.ALLOCATED).samples
    }
    assert (UUIDS[1], MODEL) in seen
    last = lines(out)[-1]
    assert "otel_gpu." in last
    assert "hw.temperature" in before[-1]
    assert "hw.temperature" not in last
