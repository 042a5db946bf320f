from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_gpu.config.declarative import from_file
from otel_gpu.config.model import Config
from otel_gpu.errors import ConfigError
from otel_gpu.exporters.otlp.settings import OtlpSettings
from otel_gpu.exporters.prometheus.settings import PrometheusSettings

FULL = """
file_format: "1.0-rc.2"
disabled: ${NOT_SET:-false}
log_level: warn2
attribute_limits: {attribute_count_limit: 128}
resource:
  attributes_list: "team=gpu,service.name=other"
  attributes:
    - {name: service.name, value: watcher}
    - {name: rack, value: 12, type: int}
    - {name: spare, value: true, type: bool}
    - {name: names, value: [a, b], type: string_array}
    - {name: empty, value: "${NOT_SET}"}
meter_provider:
  readers:
    - periodic:
        interval: 5000
        timeout: 30000
        exporter:
          otlp_http:
            endpoint: https://collector/v1/metrics
            headers_list: "api-key=low,x=y"
            headers: [{name: api-key, value: "${TOKEN}"}, {name: none, value: null}]
            compression: zstd
            timeout: 2500
            encoding: json
            temporality_preference: low_memory
            default_histogram_aggregation: explicit_bucket_histogram
            tls: {certificate_file: /ca.pem, client_key_file: /key.pem, client_certificate_file: /cert.pem}
    - periodic: {exporter: {console: }}
    - pull: {exporter: {prometheus/development: {port: "${PORT:-9000}"}}}
  views: []
tracer_provider:
  processors:
    - batch: {exporter: {otlp_grpc: {endpoint: "collector:4317", tls: {insecure: true}}}}
    - simple: {exporter: {zipkin: {endpoint: http://x}}}
  sampler: {always_on: }
"""


@pytest.fixture
def load(tmp_path: Path):
    def load(text: str, environ: dict[str, str] | None = None, **options) -> Config:
        path = tmp_path / "sdk.yaml"
        path.write_text(text)
        return Config.load(environ={**(environ or {}), "OTEL_CONFIG_FILE": str(path)}, **options)

    return load


def test_resource_and_exporters_are_read(load) -> None:
    config = load(FULL, {"TOKEN": "secret", "OTEL_SERVICE_NAME": "ignored", "OTEL_LOG_LEVEL": "?"}, traces=True)

    assert (config.disabled, config.log_level, config.interval_s) == (False, "warn", 5)
    assert dict(config.resource_attributes) == {
        "team": "gpu",
        "service.name": "watcher",
        "rack": "12",
        "spare": "true",
        "empty": "",
    }
    assert config.pipelines["metrics"].exporters == (
        "otlp_http/metrics",
        "console/metrics1",
        "prometheus/metrics2",
    )
    assert config.exporter("prometheus/metrics2", "metrics") == PrometheusSettings("localhost:9000")
    assert config.pipelines["traces"].exporters == ("otlp_grpc/traces3",)
    assert config.exporter("otlp_http/metrics", "metrics") == OtlpSettings(
        protocol="http/json",
        endpoint="http://localhost:4317",
        headers=(("api-key", "secret"), ("x", "y")),
        compression="zstd",
        timeout_s=2.5,
        ca_file="/ca.pem",
        key_file="/key.pem",
        cert_file="/cert.pem",
        temporality="delta",
        histograms="explicit",
        signal_endpoints=(("metrics", "https://collector/v1/metrics"),),
    )
    assert config.exporter("otlp_grpc/traces3", "traces") == OtlpSettings(
        endpoint="collector:4317", compression="none", insecure=True
    )


def test_what_has_no_effect_is_said(load) -> None:
    said = [notice.partition(": ")[2].partition(" has")[0] for notice in load(FULL).notices]

    assert said == [
        "attribute_limits",
        "meter_provider.views",
        "tracer_provider.sampler",
        "tracer_provider.processors[1].simple.exporter.zipkin",
        "resource.attributes[3].value",
    ]


def test_a_provider_that_is_left_out_exports_nothing(load) -> None:
    config = load('file_format: "1.0"', traces=True, profiles=True)

    assert {one.exporters for one in config.pipelines.values()} == {()}


def test_profiles_go_where_metrics_go_by_grpc(load) -> None:
    text = 'file_format: "1.0"\nmeter_provider: {readers: [{periodic: {exporter: {otlp_grpc: }}}]}'

    assert load(text, profiles=True).pipelines["profiles"].exporters == ("otlp_grpc/metrics",)


def test_the_agents_own_file_goes_before_it(load, tmp_path: Path) -> None:
    own = tmp_path / "agent.yaml"
    own.write_text("exporters: {console: }\nservice: {interval: 3s}")

    config = load(FULL, path=own)

    assert (set(config.exporters), config.interval_s, dict(config.resource_attributes)["rack"]) == (
        {"console"},
        3,
        "12",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resource: {}", "file_format: 'None' is not known"),
        ('file_format: "0.3"', "file_format: '0.3' is not known"),
        ('file_format: "1.0"\ndisabled: 3', "disabled: expected true or false"),
        ('file_format: "1.0"\nlog_level: loud', "log_level: 'loud' is not known"),
        ('file_format: "1.0"\nresource: []', "resource: expected keys and values"),
        ('file_format: "1.0"\nresource: {attributes: [{value: 1}]}', r"resource.attributes\[0\].name: it is required"),
        ('file_format: "1.0"\nmeter_provider: {readers: 1}', "meter_provider.readers: expected a list"),
        (
            'file_format: "1.0"\ntracer_provider: {processors: [{batch: {exporter: {otlp_http: {timeout: -1}}}}]}',
            r"processors\[0\].batch.exporter.otlp_http.timeout: expected a number of milliseconds",
        ),
        (
            'file_format: "1.0"\ntracer_provider: {processors: [{batch: {exporter: {otlp_http: {compression: lz4}}}}]}',
            r"sdk.yaml: tracer_provider.processors\[0\].batch.exporter.otlp_http.compression: ",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(load, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(text)


def test_a_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Config.load(environ={"OTEL_CONFIG_FILE": str(tmp_path / "none.yaml")})


_KEYS = "attributes name value readers periodic interval processors batch exporter otlp_http otlp_grpc headers tls timeout endpoint"
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS.split()), inner, max_size=4),
    max_leaves=20,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    contents=st.dictionaries(st.sampled_from(["resource", "meter_provider", "tracer_provider", "disabled"]), _VALUES)
)
def test_any_values_are_read_or_refused(tmp_path: Path, contents: dict[str, object]) -> None:
    path = tmp_path / "sdk.yaml"
    path.write_text(json.dumps({"file_format": "1.0", **contents}))
    said = ""
    try:
        from_file(str(path), {})
    except ConfigError as e:
        said = str(e)

    assert not said or said.startswith(str(path))
