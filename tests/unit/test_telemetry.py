from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from otel_gpu.service import telemetry
from otel_gpu.signals import telemetry_spans
from otel_gpu.signals.metrics import Instrument, MetricSpec, attributes
from otel_gpu.signals.spans import Span, SpanKind, SpanSpec
from tests.unit.span_examples import batch, request

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


@pytest.mark.parametrize("spec", telemetry_spans.SPANS, ids=lambda spec: spec.name)
class TestEverySpan:
    def test_names_only_declared_attributes(self, spec: SpanSpec) -> None:
        assert set(spec.attributes) <= set(telemetry.ATTRIBUTES)
        assert list(spec.attributes) == sorted(set(spec.attributes))

    def test_is_described_in_the_document(self, spec: SpanSpec) -> None:
        assert spec.description.endswith(".")
        assert f"| `{spec.name}` | {spec.kind.name} |" in telemetry.render()


def test_every_attribute_of_spans_is_of_some_span() -> None:
    assert {a.name for a in telemetry_spans.ATTRIBUTES} <= {
        name for s in telemetry_spans.SPANS for name in s.attributes
    }


@pytest.mark.parametrize(
    ("span", "declared"),
    [
        (request(), telemetry_spans.REQUEST),
        (batch(1, request()), telemetry_spans.GPU_BATCH),
        (replace(batch(1, request()), name="gpu step"), telemetry_spans.GPU_STEP),
        (replace(batch(1, request()), name="gpu nap"), None),
        (replace(batch(1, request()), kind=SpanKind.CLIENT), None),
        (replace(request(), attributes=attributes({"http.request.header.cookie": "x"})), None),
    ],
)
def test_a_span_is_declared_when_its_kind_name_and_attributes_are(span: Span, declared: SpanSpec | None) -> None:
    assert telemetry_spans.declaration(span) is declared


def test_no_attribute_is_declared_twice() -> None:
    assert len(telemetry.ATTRIBUTES) == len(telemetry.DECLARED_ATTRIBUTES)
