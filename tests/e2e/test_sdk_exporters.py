"""Do metrics and spans reach a real Collector by exporters of the OpenTelemetry SDK that are installed (`exporters: sdk:`)?"""

from __future__ import annotations

import pytest

from otel_gpu.config.model import Config
from otel_gpu.config.settings import Pipeline
from otel_gpu.exporters.otlp.settings import Protocol
from otel_gpu.exporters.sdk.settings import SdkSettings
from otel_gpu.service.exporting import build
from otel_gpu.signals.metrics import Buckets, Instrument, Measurement, MetricSpec, Resource, SeriesStore, attributes
from tests.e2e.collector import Collector
from tests.span_reading import read_spans
from tests.spans_to import spans_to
from tests.unit.span_examples import family

_NOW_NS = 1_800_000_000_000_000_000
_CALLS = MetricSpec("calls", "{call}", Instrument.COUNTER, "Calls.")
_COPIES = MetricSpec("copies", "By", Instrument.HISTOGRAM, "Copies.")


@pytest.mark.parametrize(("name", "protocol"), [("otlp_proto_grpc", "grpc"), ("otlp_proto_http", "http/protobuf")])
def test_metrics_and_spans_go_by_an_installed_exporter(
    name: str, protocol: Protocol, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Resource(attributes({"service.name": "trainer", "process.pid": 7}))
    store = SeriesStore()
    store.fold(
        [Measurement(process, _CALLS, attributes(k=n), n) for n in range(1, 101)]
        + [Measurement(process, _COPIES, (), Buckets({3: 2}, 21))],
        _NOW_NS - 10**9,
    )
    pipelines = {signal: Pipeline((), (), ("sdk",)) for signal in ("metrics", "traces")}
    config = Config(exporters={"sdk": SdkSettings(name)}, pipelines=pipelines)
    for signal in ("metrics", "traces"):
        path = "" if protocol == "grpc" else f"/v1/{signal}"
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", f"{collector.endpoint(protocol)}{path}")
    exporters = build(config)
    [exporter] = exporters.of("metrics", ["sdk"])
    exporter.export_metrics(store, _NOW_NS)
    spans_to(exporters.of("traces", ["sdk"])).export(family())
    exporters.shutdown(30)
    metrics, spans = collector.received_metrics(protocol), read_spans(collector.received("traces", protocol))

    assert metrics.total("calls") == sum(range(1, 101))
    assert [sample.resource["service.name"] for sample in metrics.named("copies").samples] == ["trainer"]
    sent = {(span.context.trace_id, span.context.span_id, span.name) for span in family()}
    assert {(span.context.trace_id, span.context.span_id, span.name) for span in spans} == sent
    assert exporter.outcomes().exported == {("metrics", ""): len(store), ("traces", ""): len(family())}
