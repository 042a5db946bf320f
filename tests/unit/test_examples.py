from __future__ import annotations

from pathlib import Path

import yaml

from otel_gpu.config.model import Config

_EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def test_the_agents_example_is_a_configuration() -> None:
    config = Config.load(_EXAMPLES / "agent.yaml", environ={"COLLECTOR": "http://collector:4317"})

    assert config.exporters["otlp"].endpoint == "http://collector:4317"
    assert config.pipelines["metrics"].receivers == ("cuda", "nvml", "self")


def test_the_two_examples_meet_at_one_port() -> None:
    collector = yaml.safe_load((_EXAMPLES / "collector.yaml").read_text())
    agent = Config.load(_EXAMPLES / "agent.yaml", environ={})

    assert agent.exporters["otlp"].endpoint.endswith(collector["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"])
