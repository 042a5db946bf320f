"""Do the rules for Prometheus find what they are to find, and are they about metrics that there are?"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from otel_gpu import telemetry
from tests.e2e import ground

_RULES = Path(__file__).parents[2] / "collector-config" / "rules.yaml"
_SERIES = Path(__file__).with_name("rules_on_series.yaml")
_UNITS = {"s": "seconds", "By": "bytes"}


def _promtool(*arguments: str | Path) -> str:
    done = subprocess.run([ground.promtool(), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_prometheus_own() -> None:
    assert "SUCCESS: 10 rules found" in _promtool("check", "rules", _RULES)


def test_alerts_fire_on_what_is_wrong_and_on_nothing_else(tmp_path: Path) -> None:
    for file in (_RULES, _SERIES):
        shutil.copy(file, tmp_path)
    assert "SUCCESS" in _promtool("test", "rules", tmp_path / _SERIES.name)


def test_each_series_is_one_that_is_declared() -> None:
    declared = set()
    for spec in (*telemetry.GROUPS["NCCL"], *telemetry.GROUPS["RDMA"]):
        name = "_".join([spec.name.replace(".", "_"), *([_UNITS[spec.unit]] if spec.unit in _UNITS else [])])
        declared.add(f"{name}_total" if spec.instrument.name == "COUNTER" else name)

    used = set(re.findall(r"\b(?:nccl|rdma)_\w+(?=[{\[])", _RULES.read_text())) | {"rdma_port_state"}

    assert used <= declared
    attributes = {name.replace(".", "_") for name in telemetry.ATTRIBUTES}
    labels = set(re.findall(r"\$labels\.(\w+)", _RULES.read_text()))
    assert {name for name in labels if name.startswith(("nccl_", "rdma_"))} <= attributes
