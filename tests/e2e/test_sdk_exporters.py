"""Do metrics and spans reach a real Collector by exporters of the OpenTelemetry SDK that are installed (`exporters: sdk:`)?"""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_gpu.config.model import Config
from otel_gpu.config.settings import Pipeline
from otel_gpu.exporters.sdk.settings import SdkSettings
from otel_gpu.service.exporting import build
from otel_gpu.signals.metrics import Buckets, Instrument, Measurement, MetricSpec, Resource, SeriesStore, attributes
from tests.e2e.collector import Collector
from tests.e2e.exported import read_metrics
from tests.span_reading import read_spans
from tests.spans_to import spans_to
from tests.unit.span_examples import family

_NOW_NS = 1_800_000_000_000_000_000
_CALLS = MetricSpec("calls", "{call}", Instrument.COUNTER, "Calls.")
_COPIES = MetricSpec("copies", "By", Instrument.HISTOGRAM, "Copies.")


@pytest.mark.parametrize("name", ["otlp_proto_grpc", "otlp_proto_http"])
def test_metrics_and_spans_go_by_an_installed_exporter(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    with (
        Collector(tmp_path / "of-metrics") as of_metrics,
        Collector(tmp_path / "of-spans", signal="traces") as of_spans,
    ):
        is_grpc = name == "otlp_proto_grpc"
        for signal, path, collector in (("METRICS", "metrics", of_metrics), ("TRACES", "traces", of_spans)):
            endpoint = collector.endpoint("grpc") if is_grpc else f"{collector.endpoint('http/protobuf')}/v1/{path}"
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", endpoint)
        exporters = build(config)
        [exporter] = exporters.of("metrics", ["sdk"])
        exporter.export_metrics(store, _NOW_NS)
        spans_to(exporters.of("traces", ["sdk"])).export(family())
        exporters.shutdown(30)
        metrics = of_metrics.stop()
        of_spans.close()

    assert metrics.total("calls") == sum(range(1, 101))
    assert [sample.resource["service.name"] for sample in read_metrics(of_metrics.out).named("copies").samples] == [
        "trainer"
    ]
    sent = {(span.context.trace_id, span.context.span_id, span.name) for span in family()}
    assert {(span.context.trace_id, span.context.span_id, span.name) for span in read_spans(of_spans.out)} == sent
    assert exporter.outcomes().exported == {("metrics", ""): len(store), ("traces", ""): len(family())}
