"""Does every span that a receiver gives an agent reach all of its exporters, to the last one?"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from otel_gpu import Agent, Config, tracers
from otel_gpu.components import registry
from otel_gpu.exporters import Exporter
from otel_gpu.signals.spans import Span
from tests.e2e.collector import Collector
from tests.span_reading import read_spans

_PACKAGE = """
import os
import time
from dataclasses import dataclass

from otel_gpu.components import ReceiverFactory, Span, SpanContext, SpanKind, SpanSpec, attributes

given = []


@dataclass(frozen=True)
class Settings:
    spans: int = 50


class Climbs:
    def __init__(self, context, settings):
        self._host, self._spans = context.host, settings.spans

    def spans(self, *, last=False):
        found = []
        for number in range(self._spans):
            now = time.time_ns()
            context = SpanContext(os.urandom(15) + b"1", os.urandom(7) + b"1")
            found.append(Span(self._host, f"climb {number}", context, now - 1000, now, attributes=attributes(floor=number)))
        given.extend(found)
        return found

    def close(self):
        pass


RECEIVER = ReceiverFactory(Settings, Climbs, signals=("traces",), spans=(SpanSpec("climb", SpanKind.INTERNAL, "A climb."),))
"""


@pytest.fixture
def climbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package with a receiver of traces, as pip leaves it."""
    place = tmp_path / "packages"
    info = place / "climbs_of_others-1.0.dist-info"
    info.mkdir(parents=True)
    (place / "climbs_of_others.py").write_text(_PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: climbs-of-others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[otel_gpu.receivers]\nclimbs = climbs_of_others:RECEIVER\n")
    monkeypatch.syspath_prepend(place)
    registry._installed.cache_clear()
    yield importlib.import_module("climbs_of_others")
    del sys.modules["climbs_of_others"]
    monkeypatch.undo()
    registry._installed.cache_clear()


class Own(Exporter):
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def export_spans(self, spans: Sequence[Span]) -> None:
        self.spans += spans


_CONFIG = """
receivers: {{climbs: {{}}}}
exporters:
  file: {{path: {out}}}
  console: {{spans_per_interval: 0}}
  otlp: {{endpoint: "{grpc}"}}
  otlp_http: {{endpoint: "{http}"}}
service:
  interval: 200ms
  pipelines: {{traces: {{receivers: [climbs], exporters: [file, console, otlp, otlp_http]}}}}
"""


def test_every_span_reaches_every_exporter(
    climbs: ModuleType, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    own, memory, of_provider = Own(), InMemorySpanExporter(), InMemorySpanExporter()
    provider = TracerProvider(ALWAYS_ON)
    provider.add_span_processor(SimpleSpanProcessor(of_provider))
    file = tmp_path / "agent.yaml"
    addresses = {"grpc": collector.endpoint("grpc"), "http": collector.endpoint("http/protobuf")}
    file.write_text(_CONFIG.format(out=tmp_path / "out", **addresses))
    with Agent(Config.load(file, environ={}), exporters=[own, memory, tracers.provider_exporter(provider)]) as agent:
        agent.wait(1)
    by_grpc = read_spans(collector.received("traces", "grpc"))
    by_http = read_spans(collector.received("traces", "http/protobuf"))

    names = sorted((span.context.trace_id.hex(), span.name) for span in climbs.given)
    assert len(names) >= 100
    for received in (read_spans(tmp_path / "out"), by_grpc, by_http, own.spans):
        assert sorted((span.context.trace_id.hex(), span.name) for span in received) == names
    for exporter in (memory, of_provider):
        found = exporter.get_finished_spans()
        assert sorted((f"{span.context.trace_id:032x}", span.name) for span in found) == names
    lines = [line for line in screen.getvalue().splitlines() if line]
    assert sorted(line.rpartition("trace=")[2] for line in lines) == [trace_id for trace_id, _ in names]
