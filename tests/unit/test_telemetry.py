from __future__ import annotations

import re
from pathlib import Path

import pytest

from otel_gpu import telemetry
from otel_gpu.signals.metrics import Instrument, MetricSpec

ROOT = Path(__file__).parents[2]
SPECS = [spec for group in telemetry.GROUPS.values() for spec in group]


def test_the_document_says_what_the_registry_says() -> None:
    stored = (ROOT / "docs" / "telemetry.md").read_text()

    assert stored == telemetry.render(), "run `make docs` and commit docs/telemetry.md"


def test_no_name_is_declared_twice() -> None:
    assert len(telemetry.ALL) == len(SPECS)


def test_every_metric_constant_of_the_module_is_in_the_registry() -> None:
    constants = {value.name for value in vars(telemetry).values() if isinstance(value, MetricSpec)}

    assert constants <= set(telemetry.ALL)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
class TestEveryMetric:
    def test_names_only_declared_attributes(self, spec: MetricSpec) -> None:
        assert set(spec.attributes) <= set(telemetry.ATTRIBUTES)

    def test_has_an_otel_name_without_its_unit(self, spec: MetricSpec) -> None:
        assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", spec.name)
        assert not re.search(r"(seconds|_ns|_ms|percent)$", spec.name)

    def test_measures_seconds_in_floats(self, spec: MetricSpec) -> None:
        assert spec.floating or spec.unit != "s"

    def test_is_described_in_one_sentence(self, spec: MetricSpec) -> None:
        assert spec.description.endswith(".")
        assert isinstance(spec.instrument, Instrument)
