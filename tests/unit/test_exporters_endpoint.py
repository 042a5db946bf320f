from __future__ import annotations

import pytest

from otel_gpu.errors import ConfigError
from otel_gpu.exporters.otlp.endpoint import target
from otel_gpu.exporters.otlp.settings import OtlpSettings


@pytest.mark.parametrize(
    ("endpoint", "insecure", "address", "tls"),
    [
        ("http://collector:4317", None, "collector:4317", False),
        ("http://collector:4317", False, "collector:4317", False),
        ("https://collector:4317/ignored", None, "collector:4317", True),
        ("https://collector:4317", True, "collector:4317", True),
        ("https://collector", None, "collector:443", True),
        ("collector:4317", None, "collector:4317", True),
        ("collector:4317", True, "collector:4317", False),
        ("collector", None, "collector:4317", True),
        ("localhost:4317", None, "localhost:4317", False),
        ("127.0.0.1:4317", None, "127.0.0.1:4317", False),
        ("[::1]:4317", None, "[::1]:4317", False),
        ("127.0.0.1.example.com:4317", None, "127.0.0.1.example.com:4317", True),
        ("localhost:4317", False, "localhost:4317", True),
        ("unix:///run/otel.sock", None, "unix:///run/otel.sock", False),
    ],
)
def test_grpc_target_is_host_and_port(endpoint: str, insecure: bool | None, address: str, tls: bool) -> None:
    found = target(OtlpSettings(endpoint=endpoint, insecure=insecure), "metrics")

    assert (found.address, found.tls) == (address, tls)


@pytest.mark.parametrize(
    ("endpoint", "signal", "url"),
    [
        ("http://h:4318", "metrics", "http://h:4318/v1/metrics"),
        ("http://h:4318/", "traces", "http://h:4318/v1/traces"),
        ("https://h/otlp/", "metrics", "https://h/otlp/v1/metrics"),
        ("localhost:4318", "profiles", "http://localhost:4318/v1development/profiles"),
        ("h:4318", "traces", "https://h:4318/v1/traces"),
        ("https://h/base?key=1", "metrics", "https://h/base/v1/metrics?key=1"),
    ],
)
def test_http_base_endpoint_gets_the_signals_path(endpoint: str, signal: str, url: str) -> None:
    assert target(OtlpSettings(endpoint=endpoint, protocol="http/protobuf"), signal).address == url


def test_http_endpoint_of_one_signal_is_used_as_it_is() -> None:
    settings = OtlpSettings(
        endpoint="http://h:4318", protocol="http/protobuf", signal_endpoints=(("metrics", "http://m:9090/api/otlp"),)
    )

    assert target(settings, "metrics").address == "http://m:9090/api/otlp"
    assert target(settings, "traces").address == "http://h:4318/v1/traces"


@pytest.mark.parametrize(
    "endpoint", ["", "http://", "ftp://h", "http://h:99999", "http://h:x", "h h:4317", "http://me:secret@h:4317"]
)
def test_endpoint_that_cannot_be_dialled_is_a_configuration_error(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="OTLP endpoint"):
        target(OtlpSettings(endpoint=endpoint), "metrics")


def test_header_names_are_sent_in_lower_case() -> None:
    assert target(OtlpSettings(headers=(("X-Scope-OrgID", " me "),)), "metrics").headers == (("x-scope-orgid", "me"),)


@pytest.mark.parametrize("header", [("bad name", "v"), ("name", "a\r\nInjected: 1"), ("name", "ü")])
def test_header_that_cannot_be_sent_is_an_error_that_keeps_the_value_secret(header: tuple[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        target(OtlpSettings(headers=(header,)), "metrics")

    assert header[1] not in str(caught.value) or header[1] == "v"


def test_profiles_say_which_version_of_the_messages_they_are() -> None:
    assert ("otlp-profiles-development-version", "1") in target(OtlpSettings(), "profiles").headers
