"""What is everything that is declared called in Prometheus, by the real Collector? Nothing twice, and as our own exporter says it."""

from __future__ import annotations

import itertools
import re
import time
import urllib.request
from pathlib import Path

from otel_gpu.exporters.otlp.exporter import OtlpExporter
from otel_gpu.exporters.otlp.settings import OtlpSettings
from otel_gpu.exporters.prometheus.names import family
from otel_gpu.service import telemetry
from otel_gpu.signals.metrics import Buckets, Instrument, Measurement, Resource, SeriesStore, attributes
from tests.e2e.collector import RunningCollector, free_ports
from tests.e2e.processes import DEADLINE_S

COLLECTOR = """
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{grpc}"}}}}}}}}
exporters: {{prometheus: {{endpoint: "127.0.0.1:{scraped}"}}}}
extensions: {{health_check: {{endpoint: "127.0.0.1:{health}"}}}}
service:
  extensions: [health_check]
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus]}}}}
"""
_RESOURCE = Resource(attributes({"service.name": "trainer", "service.instance.id": "one", "host.name": "node"}))
_IS_A_RATIO = ("utilization", "ratio")


def _everything(now_ns: int) -> SeriesStore:
    """One series of each metric, with a value for every attribute that it may have."""
    store = SeriesStore()
    for spec in telemetry.ALL.values():
        value: int | float | Buckets = 1.0 if spec.floating else 1
        if spec.instrument is Instrument.HISTOGRAM:
            value = Buckets({0: 1}, value)
        said = attributes(dict.fromkeys(spec.attributes, "said"))
        store.fold([Measurement(_RESOURCE, spec, said, value)], now_ns)
    return store


def _collectors_text(directory: Path, store: SeriesStore, now_ns: int) -> str:
    grpc, scraped, health = free_ports(3)
    config = directory / "otelcol.yaml"
    config.write_text(COLLECTOR.format(grpc=grpc, scraped=scraped, health=health))
    with RunningCollector(directory, [config], health):
        settings = OtlpSettings(endpoint=f"http://127.0.0.1:{grpc}", histograms="explicit")
        exporter = OtlpExporter(settings)
        exporter.export_metrics(store, now_ns)
        exporter.shutdown(DEADLINE_S)
        assert exporter.stats().sent_points == len(telemetry.ALL)
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            with urllib.request.urlopen(f"http://127.0.0.1:{scraped}/metrics", timeout=DEADLINE_S) as answer:
                if text := answer.read().decode():
                    return str(text)
            time.sleep(0.05)
    raise AssertionError("the Collector has nothing for Prometheus")


def test_the_collectors_names_are_ours_and_read_well(tmp_path: Path) -> None:
    now_ns = time.time_ns()

    text = _collectors_text(tmp_path, _everything(now_ns), now_ns)

    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    named = {types.pop("target_info")}
    assert named == {"gauge"}
    ours = {
        family(spec) + ("_total" if spec.instrument is Instrument.COUNTER else ""): spec
        for spec in telemetry.ALL.values()
    }
    assert types.keys() == ours.keys()
    for name, spec in ours.items():
        words = name.split("_")
        assert all(a != b for a, b in itertools.pairwise(words)), f"{name} says a word twice in a row"
        for unit in ("bytes", "seconds", "ratio", "hertz", "watts", "joules", "celsius", "total"):
            assert words.count(unit) <= 1, f"{name} has its unit twice"
        # What is 1 or 0 is no ratio, and what is one says so.
        is_ratio = spec.name.rpartition(".")[2].rpartition("_")[2] in _IS_A_RATIO
        assert name.endswith("_ratio") == is_ratio, f"{name}, of the unit {spec.unit}"
    # Two metrics of which one is called as a part of the other would be one.
    parts = {
        f"{name}_{part}" for name, kind in types.items() if kind == "histogram" for part in ("bucket", "count", "sum")
    }
    assert not parts & types.keys()


def test_every_series_has_job_and_instance_and_labels_of_its_own(tmp_path: Path) -> None:
    now_ns = time.time_ns()

    text = _collectors_text(tmp_path, _everything(now_ns), now_ns)

    reserved = {"job", "instance", "le", "quantile"}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        labels = dict(re.findall(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', line))
        assert (labels["job"], labels["instance"]) == ("trainer", "one"), line
    names = {name.replace(".", "_") for name in telemetry.ATTRIBUTES}
    assert len(names) == len(telemetry.ATTRIBUTES)
    assert not names & reserved
    assert all("." in name for name in telemetry.ATTRIBUTES), "an attribute without a namespace"
