"""Which exporters are made of a configuration, and which signals share one?"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_gpu.components import ExporterFactory, registry
from otel_gpu.config.model import Config
from otel_gpu.config.settings import Pipeline
from otel_gpu.errors import ConfigError
from otel_gpu.exporters import Exporter
from otel_gpu.exporters.console.exporter import ConsoleExporter
from otel_gpu.exporters.console.settings import ConsoleSettings
from otel_gpu.exporters.file.exporter import FileExporter
from otel_gpu.exporters.file.settings import FileSettings
from otel_gpu.exporters.objects import ObjectExporter
from otel_gpu.exporters.otlp.exporter import OtlpExporter
from otel_gpu.exporters.otlp.settings import OtlpSettings
from otel_gpu.exporters.prometheus.settings import PrometheusSettings
from otel_gpu.exporters.sdk.metrics import SdkExporter
from otel_gpu.exporters.sdk.settings import SdkSettings
from otel_gpu.exporters.sdk.spans import SdkSpanExporter
from otel_gpu.service.exporting import build
from otel_gpu.signals.spans import Span
from tests.span_reading import read_spans
from tests.spans_to import spans_to
from tests.unit.span_examples import family


def config(exporters: dict[str, object], **pipelines: Sequence[str]) -> Config:
    signals = {signal: Pipeline((), (), tuple(named)) for signal, named in pipelines.items()}
    return Config(receivers={}, processors={}, exporters=exporters, pipelines=signals)  # type: ignore[arg-type]


def test_one_that_several_signals_use_alike_is_there_once(tmp_path: Path) -> None:
    names = ("otlp", "file")
    exporters = build(
        config(
            {"otlp": OtlpSettings(), "file": FileSettings(str(tmp_path)), "console": ConsoleSettings()},
            metrics=(*names, "console"),
            profiles=names,
            traces=(*names, "console"),
        )
    )

    try:
        assert isinstance(exporters.by_signal["traces"]["otlp"], OtlpExporter)
        assert isinstance(exporters.by_signal["traces"]["file"], FileExporter)
        assert isinstance(exporters.by_signal["traces"]["console"], ConsoleExporter)
        for name in names:
            assert (
                exporters.by_signal["metrics"][name]
                is exporters.by_signal["traces"][name]
                is exporters.by_signal["profiles"][name]
            )
        assert exporters.by_signal["metrics"]["console"] is exporters.by_signal["traces"]["console"]
        assert list(exporters.stats()) == ["otlp", "file", "console"]
    finally:
        exporters.shutdown(0)


def test_what_differs_by_signal_is_another_one_of_the_same_name() -> None:
    elsewhere = OtlpSettings("http://127.0.0.1:9")
    asked = Config(
        receivers={},
        processors={},
        exporters={"otlp": OtlpSettings(), "sdk": SdkSettings("console")},
        pipelines={s: Pipeline((), (), ("otlp", "sdk")) for s in ("metrics", "traces")},
        signal_exporters={("otlp", "traces"): elsewhere},
    )

    exporters = build(asked)

    try:
        assert exporters.by_signal["metrics"]["otlp"] is not exporters.by_signal["traces"]["otlp"]
        assert exporters.by_signal["metrics"]["sdk"] is exporters.by_signal["traces"]["sdk"]
        assert exporters.by_signal["traces"]["sdk"].takes == {"metrics", "traces"}
        assert len(exporters.by_signal["traces"]["sdk"].workers()) == 2
        assert sorted(exporters.stats()) == ["otlp", "sdk"]
    finally:
        exporters.shutdown(0)


class Own(Exporter):
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def export_spans(self, spans: Sequence[Span]) -> None:
        self.spans += spans


def test_the_sink_hands_spans_to_the_exporters_of_a_pipeline_and_to_objects(tmp_path: Path) -> None:
    own, memory, of_metrics = Own(), InMemorySpanExporter(), ConsoleMetricExporter()
    files = {name: FileSettings(str(tmp_path / name)) for name in ("file/a", "file/b")}
    exporters = build(config(dict(files), traces=tuple(files)), [own, of_metrics, memory])

    spans_to(exporters.of("traces", files)).export(family())
    spans_to(exporters.of("traces", ["file/b"])).export(family()[:2])
    exporters.shutdown(10)

    assert [len(read_spans(tmp_path / name)) for name in files] == [5, 7]
    assert len(own.spans) == len(memory.get_finished_spans()) == 7
    assert [type(one) for one in exporters.of("metrics", [])] == [SdkExporter]
    assert [type(one) for one in exporters.of("traces", [])] == [ObjectExporter, SdkSpanExporter]
    assert exporters.of("profiles", []) == []
    assert {name: stats.sent_points for name, stats in exporters.stats().items()} == {
        "file/a": 5,
        "file/b": 7,
        "Own/0": 7,
        "ConsoleMetricExporter/1": 0,
        "InMemorySpanExporter/2": 7,
    }


class OfBoth(Own):
    def export_metrics(self, points: object) -> None: ...


class OfProfiles:
    def export_profiles(self, profiles: object) -> None: ...


@dataclass(frozen=True)
class Nothing:
    """Settings."""


@pytest.fixture
def vendor(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Exporters of another package, by type."""
    made: dict[str, object] = {"own": OfBoth(), "spans": InMemorySpanExporter(), "profiles": OfProfiles()}
    found = {
        name: ExporterFactory(Nothing, lambda _context, _settings, it=it: it, ("metrics", "traces", "profiles"))
        for name, it in made.items()
    }
    find = registry.find
    monkeypatch.setattr(
        registry, "find", lambda kind, type_: (found.get(type_) if kind == "exporters" else None) or find(kind, type_)
    )
    return made


def test_an_exporter_of_another_package_gets_spans(vendor: dict[str, object]) -> None:
    exporters = build(config({"own": Nothing(), "spans": Nothing()}, metrics=("own",), traces=("own", "spans")))

    spans_to(exporters.of("traces", ["own", "spans"])).export(family())
    exporters.shutdown(10)

    assert exporters.by_signal["metrics"]["own"] is exporters.by_signal["traces"]["own"]
    assert isinstance(vendor["own"], Own)
    assert vendor["own"].spans == family()
    assert isinstance(vendor["spans"], InMemorySpanExporter)
    assert len(vendor["spans"].get_finished_spans()) == 5


@pytest.mark.parametrize(
    ("signal", "name", "said"),
    [
        ("traces", "profiles", "takes no traces"),
        ("metrics", "spans", "takes no metrics"),
        ("profiles", "spans", "takes no profiles"),
        ("profiles", "console", "takes no profiles"),
    ],
)
def test_what_does_not_take_a_signal_is_said_and_leaves_nothing_behind(
    vendor: dict[str, object], signal: str, name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Config, "carries", lambda self, component, signal: True)
    settings = {"otlp": OtlpSettings(), name: ConsoleSettings() if name == "console" else Nothing()}
    before = set(threading.enumerate())

    with pytest.raises(ConfigError, match=f"exporters.{name}: .*{said}"):
        build(config(settings, **{signal: ("otlp", name)}))

    deadline = time.monotonic() + 10
    while set(threading.enumerate()) - before:
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)


def test_a_package_that_is_missing_is_said_with_the_key_of_its_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "otel_gpu.exporters.prometheus.exporter", None)
    settings = {"prometheus/a": PrometheusSettings()}

    with pytest.raises(ConfigError, match=r"^exporters\.prometheus/a: the Python package .* is missing; pip install "):
        build(config(settings, metrics=("prometheus/a",)))
