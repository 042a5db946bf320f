from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.components import registry
from otel_gpu.components.values import expand, parse_duration, parse_pairs
from otel_gpu.config.file import parse
from otel_gpu.config.model import Config
from otel_gpu.config.settings import Discovery, Pipeline
from otel_gpu.errors import ConfigError
from otel_gpu.exporters.console.settings import ConsoleSettings
from otel_gpu.exporters.file.settings import FileSettings
from otel_gpu.exporters.otlp.settings import OtlpSettings
from otel_gpu.exporters.sdk.settings import SdkSettings
from otel_gpu.processors.kernel_names.settings import KernelNamesSettings
from otel_gpu.receivers.cuda.settings import CudaSettings
from otel_gpu.receivers.inference.settings import InferenceSettings
from otel_gpu.receivers.nvml.settings import NvmlSettings
from otel_gpu.receivers.profiles.settings import ProfileSettings
from otel_gpu.receivers.self.settings import SelfSettings

FULL = """
receivers:
  cuda:
    map_entries: 1024
    site: entry
    libraries: [/usr/lib/libcuda.so.1]
    arm64_single_step: true
    link: perf
  nvml:
  self: {}
processors:
  kernel_names: {top: 3}
exporters:
  otlp/near:
    endpoint: collector:4317
    headers: {authorization: "Bearer ${env:TOKEN}", price: "$$5"}
    compression: none
    timeout: 1m30s
    temporality: delta
    tls: {insecure: false, ca_file: /ca.pem, cert_file: /cert.pem, key_file: /key.pem, insecure_skip_verify: true}
    retry_on_failure: {enabled: false, initial_interval: 100ms, max_interval: 1s, max_elapsed_time: 0}
    sending_queue: {queue_size: 7}
  otlphttp:
    endpoint: https://far/otlp
    profiles_endpoint: https://elsewhere/profiles
  file: {path: out}
  console: {rows_per_metric: 3}
  sdk: {exporter: other, timeout: 2s, sending_queue: {queue_size: 4}}
discovery: {pids: [4711]}
service:
  interval: 500ms
  telemetry: {logs: {level: debug}}
  pipelines:
    metrics:
      receivers: [cuda, self]
      processors: [kernel_names]
      exporters: [otlp/near, file]
    metrics/gpu: {receivers: [nvml], exporters: [console]}
"""


def _own_settings() -> list[type]:
    """Return what can be set of this package's components."""
    receivers = [registry.find("receivers", name) for name in registry.own("receivers")]
    processors = [registry.find("processors", name) for name in registry.own("processors")]
    exporters = [registry.find("exporters", name) for name in registry.own("exporters")]
    found = [factory.settings for factory in (*receivers, *processors, *exporters) if factory is not None]
    return list(dict.fromkeys(found))


@pytest.fixture
def load(tmp_path: Path):
    def load(text: str = "", environ: dict[str, str] | None = None, **options) -> Config:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return Config.load(path, environ=environ or {}, **options)

    return load


def otlp(config: Config, component: str = "otlp", signal: str = "metrics") -> OtlpSettings:
    settings = config.exporter(component, signal)
    assert isinstance(settings, OtlpSettings)
    return settings


class TestWithoutAFile:
    def test_every_process_is_observed_and_metrics_go_to_localhost_by_grpc(self) -> None:
        config = Config.load(environ={})

        assert config == Config()
        assert config.discovery.everything
        assert otlp(config) == OtlpSettings(endpoint="http://localhost:4317", protocol="grpc")
        assert config.pipelines == {"metrics": Pipeline(("cuda", "nvml", "self"), ("kernel_names",), ("otlp",))}

    def test_descendants_belong_to_chosen_processes_unless_they_are_left_out(self, load) -> None:
        assert Config.load(environ={}, pids=(1,)).discovery.children
        assert Config.load(environ={}, pids=(1,), children=False).discovery == Discovery((1,), children=False)
        assert load("discovery: {children: false}", pids=(1,)).discovery == Discovery((1,), children=False)

    def test_the_command_line_names_processes_output_and_duration(self) -> None:
        config = Config.load(environ={}, pids=(1, 2), output="file:out", duration_s=3)

        assert config.discovery == Discovery((1, 2))
        assert not config.discovery.everything
        assert config.exporters == {"file": FileSettings("out")}
        assert config.pipelines["metrics"].exporters == ("file",)
        assert config.duration_s == 3

    @pytest.mark.parametrize("output", ["file", "file:", "prometheus", "otlp:x", ""])
    def test_an_unknown_output_is_refused(self, output: str) -> None:
        with pytest.raises(ConfigError, match="--output"):
            Config.load(environ={}, output=output)

    def test_a_config_can_be_made_in_code(self) -> None:
        config = Config(exporters={"console": ConsoleSettings()}, discovery=Discovery((7,)))

        assert config.pipelines["metrics"].exporters == ("console",)

    def test_only_receivers_in_a_pipeline_are_used(self) -> None:
        config = Config(pipelines={"metrics": Pipeline(("self",), (), ("otlp",))})

        assert config.used_receivers == {"self": SelfSettings()}
        assert list(Config().used_receivers.values()) == [CudaSettings(), NvmlSettings(), SelfSettings()]

    def test_a_config_made_in_code_is_checked_too(self) -> None:
        with pytest.raises(ConfigError, match=r"service\.pipelines\.metrics\.exporters: 'otpl'.*'otlp'"):
            Config(pipelines={"metrics": Pipeline(("cuda",), (), ("otpl",))})


class TestFile:
    def test_every_setting_is_read(self, load) -> None:
        config = load(FULL, {"TOKEN": "secret"})

        assert config.receivers == {
            "cuda": CudaSettings(1024, "entry", ("/usr/lib/libcuda.so.1",), arm64_single_step=True, link="perf"),
            "nvml": NvmlSettings(),
            "self": SelfSettings(),
        }
        assert config.processors == {"kernel_names": KernelNamesSettings(3)}
        assert config.discovery == Discovery((4711,))
        assert (config.interval_s, config.log_level) == (0.5, "debug")
        assert config.pipelines["metrics"] == Pipeline(("cuda", "self"), ("kernel_names",), ("otlp/near", "file"))
        assert config.pipelines["metrics/gpu"] == Pipeline(("nvml",), (), ("console",))
        assert config.exporters["console"] == ConsoleSettings(3)
        assert config.exporters["sdk"] == SdkSettings("other", 2, 4)
        near = otlp(config, "otlp/near")
        assert near.headers == (("authorization", "Bearer secret"), ("price", "$5"))
        assert (near.endpoint, near.protocol, near.compression) == ("collector:4317", "grpc", "none")
        assert (near.timeout_s, near.temporality, near.queue_size) == (90, "delta", 7)
        assert (near.ca_file, near.cert_file, near.key_file) == ("/ca.pem", "/cert.pem", "/key.pem")
        assert (near.insecure, near.insecure_skip_verify) == (False, True)
        assert not near.retry.enabled
        assert (near.retry.initial_interval_s, near.retry.max_elapsed_time_s) == (0.1, 0)
        far = otlp(config, "otlphttp")
        assert (far.endpoint, far.protocol) == ("https://far/otlp", "http/protobuf")
        assert far.signal_endpoints == (("profiles", "https://elsewhere/profiles"),)

    def test_an_empty_file_is_like_none(self, load) -> None:
        assert load("") == Config()
        assert load("receivers:\nservice:\n  pipelines:\n") == Config()

    def test_an_empty_section_means_none_of_these(self, load) -> None:
        assert load("processors: {}").pipelines["metrics"].processors == ()

    def test_the_output_option_replaces_the_exporters_of_every_pipeline(self, load) -> None:
        config = load(FULL, {"TOKEN": ""}, output="console")

        assert set(config.exporters) == {"console"}
        assert {p.exporters for p in config.pipelines.values()} == {("console",)}

    @pytest.mark.parametrize(
        ("text", "key"),
        [
            ("exporters: {otlp: {timeout: 10x}}", "exporters.otlp.timeout"),
            ("exporters: {otlp: {endpoint: 'ftp://host'}}", "exporters.otlp"),
            ("discovery: {pid: [1]}", "discovery.pid"),
            (
                "exporters: {file: {path: out}}\nservice: {pipelines: {metrics: {receivers: [cuda], exporters: [fiel]}}}",
                "service.pipelines.metrics.exporters",
            ),
        ],
    )
    def test_what_stands_in_the_file_is_checked_whatever_goes_before_it(self, load, text: str, key: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(key)):
            load(text, output="console", pids=(1,))

    def test_a_mistake_in_the_output_option_is_not_the_files(self, load) -> None:
        with pytest.raises(ConfigError, match=r"^--output"):
            load("processors: {}", output="nowhere")

    def test_receivers_of_a_type_that_can_be_there_once(self, load) -> None:
        pipelines = "service: {pipelines: {metrics: {receivers: [%s], exporters: [otlp]}}}"
        with pytest.raises(
            ConfigError, match=r"receivers\.cuda/b: there can be one receiver of this type.*name cuda in"
        ):
            load("receivers: {cuda: , cuda/b: }\n" + pipelines % "cuda, cuda/b")

        assert load("receivers: {cuda: , cuda/b: }\n" + pipelines % "cuda").used_receivers.keys() == {"cuda"}

    def test_no_receiver_gives_traces(self, load) -> None:
        with pytest.raises(
            ConfigError, match=r"service\.pipelines\.traces\.receivers: cuda gives no traces, but metrics"
        ):
            load("service: {pipelines: {traces: {receivers: [cuda], exporters: [otlp]}}}")

    def test_what_all_that_is_observed_shall_carry(self, load) -> None:
        config = load(
            "discovery: {resource_attributes: {k8s.cluster.name: '${env:C}'}, pids: [3]}", {"C": "a"}, pids=(1,)
        )

        assert config.discovery == Discovery((1,), resource_attributes={"k8s.cluster.name": "a"})

    @pytest.mark.parametrize("key", ["process.pid", "Container.id", "telemetry.sdk.name", "service.instance.id", "''"])
    def test_what_tells_processes_apart_is_not_for_all(self, load, key: str) -> None:
        with pytest.raises(
            ConfigError, match=r"config.yaml: discovery: resource_attributes: .* cannot be the same of all"
        ):
            load(f"discovery: {{resource_attributes: {{{key}: x}}}}")

    def test_the_pid_option_goes_before_the_file(self, load) -> None:
        assert load(FULL, {"TOKEN": ""}, pids=(1,)).discovery == Discovery((1,))

    def test_a_variable_may_give_a_number(self, load) -> None:
        config = load("receivers: {cuda: {map_entries: '${env:ROWS:-12}'}}")

        assert config.receivers["cuda"] == CudaSettings(12)


class TestMistakesInTheFile:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("recievers: {}", r"config.yaml: recievers: .*'receivers'"),
            ("receivers: {cuda: {map_entires: 1}}", r"receivers\.cuda\.map_entires: .*'map_entries'"),
            ("receivers: {cude: {}}", r"receivers\.cude: .*'cuda'"),
            ("exporters: {otlp: {tls: {insecur: true}}}", r"exporters\.otlp\.tls\.insecur: .*'insecure'"),
            ("exporters: {jaeger/x: {}}", r"exporters\.jaeger/x: .*valid are"),
            ("service: {pipelines: {metric: {receivers: [cuda], exporters: [otlp]}}}", "no such signal.*'metrics'"),
            (
                "service: {pipelines: {metrics: {receivers: [cuda/two], exporters: [otlp]}}}",
                "'cuda/two' is not declared",
            ),
            ("service: {pipelines: {metrics: {exporters: [otlp]}}}", r"metrics\.receivers: a pipeline needs"),
            (
                "service: {pipelines: {metrics: {receivers: [cuda, self, cuda], exporters: [otlp]}}}",
                r"service\.pipelines\.metrics\.receivers: 'cuda' stands here twice; name it once",
            ),
            (
                "service: {pipelines: {metrics: {receivers: [cuda], processors: [kernel_names, kernel_names], exporters: [otlp]}}}",
                r"service\.pipelines\.metrics\.processors: 'kernel_names' stands here twice; name it once",
            ),
            (
                "service: {pipelines: {metrics: {receivers: [cuda], exporters: [otlp, otlp]}}}",
                r"service\.pipelines\.metrics\.exporters: 'otlp' stands here twice; name it once",
            ),
            (
                "extensions: {health_check: {}}\nservice: {extensions: [health_check, health_check]}",
                r"service\.extensions: 'health_check' stands here twice; name it once",
            ),
            (
                "receivers: {cuda/: {}}",
                r"receivers\.cuda/: the name after the slash is missing; write cuda, or cuda/name",
            ),
            ("processors: {kernel_names/: {}}", r"processors\.kernel_names/: the name after the slash is missing"),
            ("exporters: {'otlp/ ': {}}", r"exporters\.otlp/ : the name after the slash is missing"),
            ("extensions: {health_check/: {}}", r"extensions\.health_check/: the name after the slash is missing"),
            (
                "service: {pipelines: {metrics/: {receivers: [cuda], exporters: [otlp]}}}",
                r"service\.pipelines\.metrics/: the name after the slash is missing; write metrics, or metrics/name",
            ),
            ("receivers: {cuda: {map_entries: 0}}", r"receivers\.cuda\.map_entries: expected int >= 1"),
            ("receivers: {cuda: {map_entries: many}}", r"receivers\.cuda\.map_entries: expected int, got str"),
            ("receivers: {cuda: {site: slow}}", r"receivers\.cuda\.site: invalid enum value 'slow'"),
            ("receivers: {cuda: [1]}", r"receivers\.cuda: expected keys and values"),
            ("exporters: {file: {}}", r"exporters\.file: object missing required field path"),
            ("exporters: {otlp: {timeout: -1}}", r"exporters\.otlp\.timeout: '-1' is no duration"),
            ("exporters: {otlp: {compression: lz4}}", "invalid enum value 'lz4'; choose of gzip, zstd, none"),
            ("receivers: {profile: {types: [bogus]}}", r"types\[0\]: invalid enum value 'bogus'; choose of .*launch"),
            ("service: {telemetry: {logs: {level: x}}}", r"level: invalid enum value 'x'; choose of debug, info"),
            ("exporters: {otlp: {timeout: 10 s}}", r"exporters\.otlp\.timeout: '10 s' is no duration"),
            ("exporters: {otlp: {headers: {a: 1}}}", r"exporters\.otlp\.headers"),
            ("discovery: {pids: [0]}", r"discovery\.pids\[0\]: expected int >= 1"),
            ("exporters: {otlp: {endpoint: 'http://'}}", r"exporters\.otlp: the OTLP endpoint .* names no host"),
            ("exporters: {otlp: {traces_endpoint: 'ftp://h'}}", r"exporters\.otlp: the OTLP endpoint .* its scheme"),
            ("exporters: {otlp: {headers: {'a b': c}}}", r"exporters\.otlp: the OTLP header name"),
            ("service: {interval: 1ms}", r"service\.interval: 1ms is too short"),
            (
                "exporters: {otlp: {endpoint: '${env:HOST}'}}",
                r"exporters\.otlp\.endpoint: the variable HOST is not set",
            ),
            ("receivers: {cuda: {site: '${file:/x}'}}", r"\$\{file:…\} is not understood"),
            ("a: 1\n b: 2", "line 2, column 3"),
            ("receivers: [\n", "line 2"),
            ("receivers: {}\nreceivers: {}", "line 2, column 1: 'receivers' stands here twice"),
            ("1: 2", "the key 1 is no text"),
            ("- a", "expected keys and values at the top level"),
            ("&a a: &b [*b]", "nested too deep"),
            ("a: \x00", "not YAML"),
            ("!!python/object/apply:os.system ['true']", "line 1"),
        ],
    )
    def test_each_is_named_with_its_place_and_what_to_do(self, load, text: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message) as failure:
            load(text)
        assert "config.yaml: " in str(failure.value)
        assert "\n" not in str(failure.value)

    @pytest.mark.parametrize("limit", [1_000, 100_000])
    def test_how_deep_it_may_be_is_not_the_interpreters_to_say(self, load, limit: int) -> None:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(limit)
        try:
            with pytest.raises(ConfigError, match=r"config\.yaml: nested too deep, or an alias holds itself"):
                load("receivers: &a [*a]")
        finally:
            sys.setrecursionlimit(before)

    def test_an_alias_bomb_is_refused(self, load) -> None:
        bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
        )
        with pytest.raises(ConfigError, match="values are no configuration"):
            load(bomb)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
            Config.load(tmp_path / "nowhere.yaml", environ={})

    @given(st.binary(max_size=200))
    def test_any_bytes_are_read_or_refused(self, data: bytes) -> None:
        with contextlib.suppress(ConfigError):
            parse(data, "config.yaml", {})


class TestVariables:
    def test_the_exporter_is_set_up_by_them(self) -> None:
        settings = otlp(
            Config.load(
                environ={
                    "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector",
                    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                    "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%2Cb, x = y",
                    "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
                    "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
                    "OTEL_EXPORTER_OTLP_CERTIFICATE": "/ca.pem",
                    "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/key.pem",
                    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "/cert.pem",
                    "OTEL_EXPORTER_OTLP_INSECURE": "TRUE",
                    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "Delta",
                    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": "explicit_bucket_histogram",
                }
            )
        )

        assert settings == OtlpSettings(
            endpoint="https://collector",
            protocol="http/protobuf",
            headers=(("api-key", "a,b"), ("x", "y")),
            timeout_s=2.5,
            compression="none",
            ca_file="/ca.pem",
            key_file="/key.pem",
            cert_file="/cert.pem",
            insecure=True,
            temporality="delta",
            histograms="explicit",
        )

    def test_a_signals_own_goes_first(self) -> None:
        config = Config.load(
            environ={
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://all:4317",
                "OTEL_EXPORTER_OTLP_HEADERS": "k=all",
                "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "k=metrics",
                "OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT": "http://profiles:4040",
            }
        )

        assert otlp(config, signal="metrics").headers == (("k", "metrics"),)
        assert otlp(config, signal="traces").headers == (("k", "all"),)
        assert otlp(config, signal="profiles").signal_endpoints == (("profiles", "http://profiles:4040"),)
        assert otlp(config, signal="metrics").signal_endpoints == ()

    @pytest.mark.parametrize(
        ("environ", "endpoint", "protocol"),
        [
            ({}, "http://localhost:4317", "grpc"),
            ({"PROTOCOL": "http/protobuf"}, "http://localhost:4318", "http/protobuf"),
            ({"ENDPOINT": "http://h:4318"}, "http://h:4318", "http/protobuf"),
            ({"ENDPOINT": "http://h:4318", "PROTOCOL": "grpc"}, "http://h:4318", "grpc"),
            ({"ENDPOINT": "h:4317", "PROTOCOL": ""}, "h:4317", "grpc"),
        ],
    )
    def test_the_protocol_is_grpc_unless_said_or_the_port_is_https_own(self, environ, endpoint, protocol) -> None:
        settings = otlp(Config.load(environ={f"OTEL_EXPORTER_OTLP_{k}": v for k, v in environ.items()}))

        assert (settings.endpoint, settings.protocol) == (endpoint, protocol)

    def test_credentials_do_not_go_to_an_endpoint_that_the_file_names(self, load) -> None:
        environ = {"OTEL_EXPORTER_OTLP_HEADERS": "token=secret", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://trusted:4317"}
        config = load("exporters: {otlp: , otlp/other: {endpoint: 'other:4317'}}", environ)

        assert otlp(config).headers == (("token", "secret"),)
        assert otlp(config, "otlp/other").headers == ()

    def test_the_file_goes_before_them(self, load) -> None:
        config = load(
            "exporters: {otlp: {compression: gzip, timeout: 3s}}\nservice: {interval: 2s}",
            {
                "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
                "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
                "OTEL_METRIC_EXPORT_INTERVAL": "9000",
            },
        )

        assert (otlp(config).compression, otlp(config).timeout_s, config.interval_s) == ("gzip", 3, 2)

    def test_those_of_the_agent_are_read(self) -> None:
        config = Config.load(
            environ={
                "OTEL_RESOURCE_ATTRIBUTES": "service.name=x,k8s.cluster.name=a%20b",
                "OTEL_SERVICE_NAME": "watcher",
                "OTEL_METRIC_EXPORT_INTERVAL": "1500",
                "OTEL_SDK_DISABLED": "true",
                "OTEL_LOG_LEVEL": "WARN",
            }
        )

        assert dict(config.resource_attributes) == {"service.name": "watcher", "k8s.cluster.name": "a b"}
        assert config.discovery.resource_attributes == {}
        assert (config.interval_s, config.disabled, config.log_level) == (1.5, True, "warn")

    @pytest.mark.parametrize(
        ("value", "exporters"),
        [
            ("console", ("console",)),
            ("none", ()),
            ("otlp, Console ,otlp", ("otlp", "console")),
            ("none,console", ("console",)),
            ("zipkin,console", ("console",)),
            ("zipkin", ("otlp",)),
            (",", ("otlp",)),
        ],
    )
    def test_the_exporters_of_a_signal_are_chosen(self, value: str, exporters: tuple[str, ...]) -> None:
        of_metrics = Config.load(environ={"OTEL_METRICS_EXPORTER": value}, traces=True, profiles=True).pipelines
        of_traces = Config.load(environ={"OTEL_TRACES_EXPORTER": value}, traces=True).pipelines

        assert {signal: one.exporters for signal, one in of_metrics.items()} == {
            "metrics": exporters,
            "traces": ("otlp",),
            "profiles": ("otlp",),
        }
        assert {signal: one.exporters for signal, one in of_traces.items()} == {
            "metrics": ("otlp",),
            "traces": exporters,
        }

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/xml"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "nan"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "9" * 400),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
            ("OTEL_EXPORTER_OTLP_INSECURE", "1"),
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "none"),
            ("OTEL_METRICS_EXPORTER", "x\n" * 10_000),
            ("OTEL_METRIC_EXPORT_INTERVAL", "-1"),
            ("OTEL_LOG_LEVEL", "loud"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=b,c"),
        ],
    )
    def test_one_that_cannot_be_understood_is_said_and_ignored(self, name: str, value: str) -> None:
        config = Config.load(environ={name: value})

        [notice] = config.notices
        assert notice.startswith(f"{name} is ignored: ")
        assert len(notice) < 400
        assert notice.isprintable()
        assert config.exporter("otlp", "metrics") in (OtlpSettings(), OtlpSettings(insecure=False))
        assert dataclasses.replace(config, exporters=Config().exporters, signal_exporters={}) == Config()

    @pytest.mark.parametrize(
        ("protocol", "compression", "used"),
        [("http/json", "zstd", ("http/json", "zstd")), ("HTTP/JSON", "gzip", ("http/json", "gzip"))],
    )
    def test_what_http_has_is_taken(self, protocol: str, compression: str, used: tuple[str, str]) -> None:
        config = Config.load(
            environ={"OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_EXPORTER_OTLP_COMPRESSION": compression}
        )

        assert (otlp(config).protocol, otlp(config).compression) == used
        assert otlp(config).endpoint == "http://localhost:4318"
        assert config.notices == ()

    @pytest.mark.parametrize(
        ("name", "value"),
        [("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "secret"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:port")],
    )
    def test_a_wrong_one_is_named(self, name: str, value: str) -> None:
        with pytest.raises(ConfigError, match=name):
            Config.load(environ={name: value})

    def test_one_without_effect_is_said(self) -> None:
        [notice] = Config.load(environ={"OTEL_BSP_SCHEDULE_DELAY": "1", "OTEL_LOGS_EXPORTER": " "}).notices

        assert notice.startswith("OTEL_BSP_SCHEDULE_DELAY has no effect: ")

    def test_an_empty_one_is_unset(self) -> None:
        names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_LOG_LEVEL", "OTEL_SDK_DISABLED")

        assert Config.load(environ=dict.fromkeys(names, "")) == Config()


class TestValues:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("10s", 10), ("1m30s", 90), ("500ms", 0.5), ("1.5h", 5400), ("0", 0), ("20us", 2e-5), ("5", 5), ("0.5", 0.5)],
    )
    def test_durations_are_written_as_in_go_or_as_seconds(self, text: str, seconds: float) -> None:
        assert parse_duration(text, "x") == pytest.approx(seconds)

    @pytest.mark.parametrize("text", ["", "-10", "s", "-1s", "1 s", "1d", "1s "])
    def test_what_is_no_duration_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError, match="no duration"):
            parse_duration(text, "x")

    @pytest.mark.parametrize(
        ("text", "expanded"),
        [
            ("${env:A}", "1"),
            ("${A}", "1"),
            ("x${env:A}y${env:A}", "x1y1"),
            ("${env:B:-2}", "2"),
            ("${env:B:-}", ""),
            ("${env:EMPTY:-3}", "3"),
            ("$${env:A}", "${env:A}"),
            ("$A $", "$A $"),
        ],
    )
    def test_references_are_expanded_as_in_the_collector(self, text: str, expanded: str) -> None:
        assert expand(text, {"A": "1", "EMPTY": ""}, "x") == expanded

    def test_what_a_variable_holds_is_not_expanded_again(self) -> None:
        assert expand("${env:A}", {"A": "${env:A}"}, "x") == "${env:A}"

    @given(st.dictionaries(st.text("abc.-_", min_size=1), st.text(), max_size=5))
    def test_pairs_are_percent_decoded(self, pairs: dict[str, str]) -> None:
        text = ",".join(f"{k}={quote(v, safe='')}" for k, v in pairs.items())

        assert dict(parse_pairs(text, "x")) == pairs


class TestKernelNames:
    @pytest.mark.parametrize("written", ["off", "'off'", "short", "full"])
    def test_yaml_does_not_make_a_boolean_of_off(self, load, written: str) -> None:
        config = load(f"processors: {{kernel_names: {{demangle: {written}}}}}")

        assert config.processors["kernel_names"] == KernelNamesSettings(demangle=written.strip("'"))

    def test_another_word_is_refused(self, load) -> None:
        with pytest.raises(ConfigError, match=r"processors\.kernel_names\.demangle"):
            load("processors: {kernel_names: {demangle: loud}}")


class TestTraces:
    def test_no_request_is_followed_unless_asked_for(self, load) -> None:
        assert "traces" not in load("").signals
        assert "inference" not in Config().receivers

    def test_the_option_adds_a_pipeline_and_what_is_measured_of_requests(self, load) -> None:
        config = load("exporters: {otlp: , console: }", traces=True)

        assert config.receivers["inference"] == InferenceSettings()
        assert config.pipelines["traces"] == Pipeline(("inference",), (), ("otlp", "console"))
        assert config.pipelines["metrics"].receivers == ("cuda", "nvml", "self", "inference")

    @pytest.mark.parametrize("text", ["", "service: {pipelines: {metrics: {receivers: [cuda], exporters: [otlp]}}}"])
    def test_what_the_options_add_goes_through_the_declared_processors_that_take_it(self, load, text: str) -> None:
        processors = "resource: {attributes: [{key: a, action: delete}]}, kernel_names: {demangle: short}"
        config = load(f"receivers: {{cuda: }}\nprocessors: {{{processors}}}\n{text}", traces=True, profiles=True)

        assert config.pipelines["profiles"].processors == ("resource", "kernel_names")
        assert config.pipelines["traces"].processors == ("resource",)
        assert config.pipelines["metrics"].processors == (() if text else ("resource", "kernel_names"))

    def test_both_options_together_add_both(self, load) -> None:
        assert load("", traces=True, profiles=True).signals == {"metrics", "traces", "profiles"}

    def test_a_declared_receiver_stands_in_both_pipelines(self, load) -> None:
        config = load("receivers: {cuda: , inference: {max_children: 3}}\nexporters: {file: {path: o}}")

        assert config.receivers["inference"] == InferenceSettings(max_children=3)
        assert config.pipelines["metrics"].receivers == ("cuda", "inference")
        assert config.pipelines["traces"] == Pipeline(("inference",), (), ("file",))
        assert config.with_signal("traces") == config

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "service: {pipelines: {traces: {receivers: [cuda], exporters: [otlp]}}}",
                "cuda gives no traces, but metrics",
            ),
            (
                (
                    "receivers: {inference: }\nservice: {pipelines: {traces: {receivers: [inference], "
                    "processors: [kernel_names], exporters: [otlp]}}}"
                ),
                "kernel_names processes metrics and profiles; leave it out",
            ),
            ("receivers: {inference: {max_children: 17}}", r"receivers\.inference\.max_children"),
        ],
    )
    def test_what_cannot_be_is_said(self, load, text: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            load(text)


class TestProfiles:
    def test_nothing_is_profiled_unless_asked_for(self, load) -> None:
        assert "profiles" not in load("").signals
        assert "profile" not in Config().receivers

    def test_a_declared_receiver_has_a_pipeline_of_its_own(self, load) -> None:
        config = load("receivers: {cuda: , profile: {types: [launch, cpu], cpu_hz: 99}}\nexporters: {file: {path: o}}")

        assert config.receivers["profile"] == ProfileSettings(("launch", "cpu"), cpu_hz=99)
        assert config.pipelines == {
            "metrics": Pipeline(("cuda",), ("kernel_names",), ("file",)),
            "profiles": Pipeline(("profile",), ("kernel_names",), ("file",)),
        }

    def test_the_option_adds_a_pipeline_through_every_exporter_that_can(self, load) -> None:
        config = load("exporters: {otlp: , file: {path: o}, console: }").with_signal("profiles")

        assert config.receivers["profile"] == ProfileSettings()
        assert config.pipelines["profiles"] == Pipeline(("profile",), ("kernel_names",), ("otlp", "file"))
        assert (
            config.pipelines["metrics"] == load("exporters: {otlp: , file: {path: o}, console: }").pipelines["metrics"]
        )

    def test_the_option_keeps_what_is_configured(self, load) -> None:
        config = load(
            "receivers: {cuda: , profile: {types: [wait]}}\nservice: {pipelines: {profiles: "
            "{receivers: [profile], exporters: [otlp]}}}"
        )

        assert config.with_signal("profiles") == config

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "service: {pipelines: {profiles: {receivers: [cuda], exporters: [otlp]}}}",
                "cuda gives no profiles, but metrics",
            ),
            (
                "receivers: {profile: }\nservice: {pipelines: {metrics: {receivers: [profile], exporters: [otlp]}}}",
                "profile gives no metrics, but profiles",
            ),
            (
                (
                    "receivers: {profile: }\nexporters: {console: }\n"
                    "service: {pipelines: {profiles: {receivers: [profile], exporters: [console]}}}"
                ),
                "console takes no profiles; add an otlp or a file exporter",
            ),
            ("receivers: {profile: }\nexporters: {console: }", "profiles leave by OTLP or in files, not by console"),
            ("receivers: {profile: {types: [launches]}}", r"receivers\.profile\.types"),
            (
                "processors: {resource: {attributes: [{key: a, action: delete}, {kye: b, action: delete}]}}",
                r"processors\.resource\.attributes\[1\]\.kye: there is no such key; did you mean 'key'",
            ),
            (
                "processors: {resource: {attributes: [delete]}}",
                r"attributes\[0\]: expected keys and values, found text",
            ),
            ("processors: {resource: {attributes: [{key: a, action: remove}]}}", r"attributes\[0\]\.action"),
            ("processors: {resource: {attributes: []}}", r"processors\.resource\.attributes"),
            ("processors: {resource: }", "processors.resource: object missing required field attributes"),
            (
                "processors: {resource: {attributes: [{key: a, action: insert}]}}",
                "processors.resource: a needs one value",
            ),
        ],
    )
    def test_what_cannot_be_is_said(self, load, text: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            load(text)


class TestDocument:
    @pytest.fixture
    def text(self) -> str:
        return (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()

    def test_its_file_is_valid_and_shows_the_defaults(self, load, text: str) -> None:
        config = load(text.partition("```yaml\n")[2].partition("```")[0])

        assert config.receivers["cuda"] == CudaSettings()
        assert config.processors["kernel_names"] == KernelNamesSettings()
        assert otlp(config) == dataclasses.replace(OtlpSettings(), insecure=True)
        assert config.exporters["file"] == FileSettings("out")
        assert config.exporters["console"] == ConsoleSettings()
        assert config.exporters["sdk"] == SdkSettings("otlp_proto_http")
        assert (config.discovery, config.interval_s, config.log_level) == (Discovery(), 10, "info")
        assert config.receivers["profile"] == ProfileSettings()
        assert config.pipelines == Config().with_signal("profiles").pipelines

    @pytest.mark.parametrize("section", _own_settings())
    def test_it_names_every_key(self, text: str, section: type) -> None:
        assert [f.name for f in dataclasses.fields(section) if not re.search(rf"\b{f.name}:", text)] == []
