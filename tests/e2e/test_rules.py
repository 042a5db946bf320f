"""Do the rules for Prometheus find what they are to find, and are they about metrics that there are?"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from otel_gpu.exporters.prometheus.names import family
from otel_gpu.service import telemetry
from otel_gpu.signals.metrics import Instrument
from tests.e2e import ground
from tests.e2e.scraping import names_in

_RULES = Path(__file__).parents[2] / "collector-config" / "rules.yaml"
_SERIES = Path(__file__).with_name("rules_on_series.yaml")
_DOCUMENT = Path(__file__).parents[2] / "docs" / "alerts.md"


def _promtool(*arguments: str | Path) -> str:
    done = subprocess.run([ground.promtool(), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_prometheus_own() -> None:
    assert "SUCCESS: 34 rules found" in _promtool("check", "rules", _RULES)


def test_alerts_fire_on_what_is_wrong_and_on_nothing_else(tmp_path: Path) -> None:
    for file in (_RULES, _SERIES):
        shutil.copy(file, tmp_path)
    assert "SUCCESS" in _promtool("test", "rules", tmp_path / _SERIES.name)


def test_native_histograms_are_as_good(tmp_path: Path) -> None:
    shutil.copy(_RULES, tmp_path)
    series = shutil.copy(_SERIES.with_name("rules_on_native_series.yaml"), tmp_path)
    promtool = ground.prometheus3().with_name("promtool")
    done = subprocess.run([promtool, "test", "rules", series], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(_RULES.read_text())["groups"] for rule in group["rules"]]


def test_each_alert_is_tried_and_says_what_to_do_and_where_that_is_written() -> None:
    alerts = [rule for rule in _rules() if "alert" in rule]
    tests = yaml.safe_load(_SERIES.read_text())["tests"]
    tried = [one for test in tests for one in test["alert_rule_test"]]
    fires = {one["alertname"] for one in tried if one.get("exp_alerts")}
    rests = {one["alertname"] for one in tried if not one.get("exp_alerts")}
    headings = {line[3:].strip().lower() for line in _DOCUMENT.read_text().splitlines() if line.startswith("## ")}

    names = {rule["alert"] for rule in alerts}
    assert fires == names
    # Of this one both severities fire in one test, each on the port of the other's silence.
    assert names - rests == {"RdmaNacks"}
    for rule in alerts:
        said = rule["annotations"]
        assert said["summary"]
        assert said["description"]
        page, _, anchor = said["runbook_url"].partition("#")
        assert page.endswith("docs/alerts.md")
        assert anchor == rule["alert"].lower()
        assert anchor in headings


def test_each_series_is_one_that_is_declared() -> None:
    declared = set()
    for spec in telemetry.ALL.values():
        name = family(spec)
        if spec.instrument is Instrument.HISTOGRAM:
            declared |= {name, f"{name}_sum", f"{name}_count"}
        else:
            declared.add(f"{name}_total" if spec.instrument is Instrument.COUNTER else name)
    recorded = {rule["record"] for rule in _rules() if "record" in rule}

    assert set().union(*(names_in(rule["expr"]) for rule in _rules())) - recorded <= declared
    attributes = {name.replace(".", "_") for name in telemetry.ATTRIBUTES}
    labels = set(re.findall(r"\$labels\.(\w+)|(\w+)(?:=~?|!=|!~)\"", _RULES.read_text()))
    used = {one for pair in labels for one in pair if one}
    assert used <= attributes | {"job", "host_name", "process_pid"}
