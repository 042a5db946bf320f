from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import yaml

from otel_gpu import tracers
from otel_gpu.config.model import Config
from tests.unit.span_examples import request

_EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def test_the_agents_example_is_a_configuration() -> None:
    config = Config.load(_EXAMPLES / "agent.yaml", environ={"COLLECTOR": "http://collector:4317"})

    assert config.exporters["otlp"].endpoint == "http://collector:4317"
    assert config.pipelines["metrics"].receivers == ("cuda", "nvml", "self")


def test_the_two_examples_meet_at_one_port() -> None:
    collector = yaml.safe_load((_EXAMPLES / "collector.yaml").read_text())
    agent = Config.load(_EXAMPLES / "agent.yaml", environ={})

    assert agent.exporters["otlp"].endpoint.endswith(collector["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"])


def test_spans_go_through_the_examples_provider(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(_EXAMPLES / "own_tracer_provider.py"))
    provider = example["make_provider"]()

    tracers.provider_exporter(provider).export_spans([request(3)])
    provider.shutdown()

    assert capsys.readouterr().out == "'sträm' 'POST /v1/completions' 12.000 ms 3 launches\n"
