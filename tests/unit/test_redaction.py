"""No message holds a credential: of the configuration, of an exporter, of a library's exception, in the log."""

from __future__ import annotations

import base64
import http.server
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.cli import main
from otel_gpu.cli.doctor.host_checks import check_host
from otel_gpu.config.model import Config
from otel_gpu.errors import ConfigError, OtelGpuError
from otel_gpu.exporters.delivery.payload import Payload
from otel_gpu.exporters.delivery.settings import RetrySettings
from otel_gpu.exporters.otlp.exporter import OtlpExporter
from otel_gpu.exporters.otlp.settings import OtlpSettings
from otel_gpu.text import endpoint_without_credentials, without_credentials

SECRET = "S3cr3t-0f-Th1s-T3st"
WRONG_ENDPOINTS = [
    f"http://me:{SECRET}@h:4317",
    f"me:{SECRET}@h:4317",
    f"http://me:a/{SECRET}@h:4317",
    f"http://me:a?{SECRET}@h:4317",
    f"http://me:a#{SECRET}@h:4317",
    f"http://me:{SECRET}",
    f"http://{SECRET}@",
    f"http://:{SECRET}@h:x",
    f"http://h:99999/v1?key={SECRET}",
    f"http://h h/v1?key={SECRET}",
    f"http://[h?{SECRET}",
    f"ftp://me:{SECRET}@h",
    f"http://h:x#{SECRET}",
]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("OTEL_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def message(ask: Callable[[], object]) -> str:
    with pytest.raises(OtelGpuError) as failure:
        ask()
    return str(failure.value)


@pytest.mark.parametrize("endpoint", WRONG_ENDPOINTS)
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_an_endpoint_that_cannot_be_used_is_shown_without_them(endpoint: str, protocol) -> None:
    of_file = message(lambda: OtlpExporter(OtlpSettings(endpoint=endpoint, protocol=protocol)))
    of_signal = message(lambda: OtlpExporter(OtlpSettings(protocol=protocol, signal_endpoints=(("traces", endpoint),))))

    assert SECRET not in of_file + of_signal
    assert "OTLP endpoint" in of_file


@pytest.mark.parametrize("endpoint", WRONG_ENDPOINTS)
def test_nor_do_the_variables_the_command_line_or_the_log_show_them(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)

    assert main(["run", "--pid", str(os.getpid()), "--debug"]) == 2
    assert main(["run", "--output", f"otlp:{endpoint}", "--debug"]) == 2

    assert SECRET not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [
        ("http://h:4317/v1/metrics", "http://h:4317/v1/metrics"),
        ("h:4317", "h:4317"),
        ("[::1]:4317", "[::1]:4317"),
        ("http://h:4317/v1?key=value", "http://h:4317/v1?***"),
        ("http://me:word@h:4317/x", "http://***@h:4317/x"),
    ],
)
def test_what_is_no_credential_is_shown(endpoint: str, shown: str) -> None:
    assert endpoint_without_credentials(endpoint) == shown


@given(st.text(max_size=40), st.text(max_size=10), st.text(max_size=10))
def test_any_endpoint_can_be_shown(noise: str, user: str, host: str) -> None:
    endpoint_without_credentials(noise)
    assert SECRET not in endpoint_without_credentials(f"http://{user}:{SECRET}@{host.replace('@', '')}")


def test_urls_in_any_text_lose_them() -> None:
    text = f"cannot reach 'https://me:{SECRET}@h/x?key={SECRET}' or http://h/?{SECRET}; token {SECRET}"

    assert without_credentials(text, [SECRET]) == ("cannot reach 'https://***@h/x?***' or http://h/?*** token ***")


@pytest.mark.parametrize(
    "yaml",
    [
        f"exporters: {{otlp: {{headers: {{authorization: *{SECRET}}}}}}}",
        f"exporters: {{otlp: {{headers: {{authorization: !{SECRET}}}}}}}",
        f"exporters: {{otlp: {{headers: 'Bearer {SECRET}'}}}}",
        f"exporters: {{otlp: {{headers: {{authorization: ['{SECRET}']}}}}}}",
        f"exporters: {{otlp: {{headers: {{authorization: 'a${{{SECRET}}}'}}}}}}",
        f"exporters: {{otlp: 'https://me:{SECRET}@h'}}",
        f"exporters: {{otlp: {{endpoint: 'https://me:{SECRET}@h'}}}}",
        f"exporters: {{otlp: {{tls: '{SECRET}'}}}}",
        f"exporters: {{otlp: {{'https://me:{SECRET}@h': }}}}",
        f"exporters: {{otlp: {{headers: {{'authorization: Basic {SECRET}': '='}}}}}}",
        f"exporters: {{otlp: {{headers: {{authorization: 'Bearer {SECRET}\\n'}}}}}}",
        f'exporters: {{otlp: {{headers: {{authorization: "Bearer {SECRET}\\u00fc"}}}}}}',
        f"exporters: {{otlp: {{headers: {{authorization: {SECRET}: x}}}}}}",
        f"exporters: {{otlp: {{headers: {{authorization: @{SECRET}}}}}}}",
    ],
)
def test_a_mistake_in_the_file_is_said_without_them(yaml: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml)

    def use() -> None:
        for settings in Config.load(file, environ={}).exporters.values():
            assert isinstance(settings, OtlpSettings)
            OtlpExporter(settings)
        raise ConfigError("nothing is wrong with it")

    assert SECRET not in message(use)


@pytest.mark.parametrize(
    "headers",
    [
        f"Bearer {SECRET}",
        f"authorization:Bearer {SECRET}",
        f"authorization: Basic {SECRET}==",
        f"a=b,Bearer {SECRET}",
        f"authorization=Bearer {SECRET}%0A,x=%00{SECRET}",
    ],
)
def test_headers_in_variables_are_never_quoted(headers: str) -> None:
    def use() -> None:
        OtlpExporter(Config.load(environ={"OTEL_EXPORTER_OTLP_HEADERS": headers}).exporters["otlp"])

    assert SECRET.lower() not in message(use).lower()


def failure(settings: OtlpSettings, caplog: pytest.LogCaptureFixture) -> str:
    """Return all that is said when an export fails."""
    caplog.set_level(logging.DEBUG)
    exporter = OtlpExporter(settings)
    exporter.submit("metrics", Payload(b"", 1, 0))
    exporter.shutdown(10)
    assert exporter.stats().failed_points == 1, exporter.stats()
    return f"{exporter.stats().last_error} {[r.getMessage() for r in caplog.records if r.name.startswith('otel_gpu')]}"


ONCE = RetrySettings(enabled=False)


@pytest.mark.parametrize(
    "proxy",
    [
        f"http://me:{SECRET}@127.0.0.1:1",
        f"http://me:{SECRET}@[bad",
        f"http://me:{SECRET}@",
        f"http://me:a/{SECRET}@127.0.0.1:1",
        f"http://me:{SECRET}@127.0.0.1:x",
        f"socks5://me:{SECRET}@127.0.0.1:1",
        f"ftp://me:{SECRET}@127.0.0.1:1",
        f"me:{SECRET}@127.0.0.1:1",
        f"http://me:{SECRET}@{'x' * 70}.example:1",
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxys_url_is_in_no_reason(
    proxy: str, scheme: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(f"{scheme}_proxy", proxy)
    settings = OtlpSettings(
        endpoint=f"{scheme}://192.0.2.1:4318/?key={SECRET}",
        protocol="http/protobuf",
        headers=(("authorization", f"Bearer {SECRET}"),),
        retry=ONCE,
        timeout_s=5,
    )

    assert SECRET not in failure(settings, caplog)


class Echo(http.server.BaseHTTPRequestHandler):
    """A receiver that repeats what it was told."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        told = f"{self.path} {self.headers['authorization']}"
        self.send_response(self.server.status, told)  # type: ignore[attr-defined]
        self.send_header("Location", f"http://127.0.0.1{self.path}")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told.encode())

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def echo() -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.handle_error = lambda *_: None  # type: ignore[method-assign] - a client that hangs up is no failure here
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("status", [307, 400, 401, 500])
def test_a_receiver_that_repeats_them_is_not_quoted(
    echo: http.server.ThreadingHTTPServer, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    echo.status = status  # type: ignore[attr-defined]
    settings = OtlpSettings(
        endpoint=f"http://127.0.0.1:{echo.server_port}/{'x' * 240}?key={SECRET}",
        protocol="http/protobuf",
        headers=(("authorization", f"Bearer {SECRET}"),),
        retry=ONCE,
    )

    said = failure(settings, caplog)

    assert SECRET[:8] not in said
    assert f"HTTP {status}" in said


def test_a_receiver_that_repeats_them_over_grpc_is_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    def handle(_body: bytes, context: grpc.ServicerContext) -> bytes:
        told = dict(context.invocation_metadata())["authorization"]
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{'x' * 280} {told} is wrong")
        raise AssertionError

    class Handler(grpc.GenericRpcHandler):
        def service(self, _call: object) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(handle)

    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    token = base64.b64encode(SECRET.encode()).decode()
    settings = OtlpSettings(
        endpoint=f"http://127.0.0.1:{port}", headers=(("authorization", f"Basic {token}"),), retry=ONCE
    )

    said = failure(settings, caplog)

    assert token[:8] not in said
    assert "INVALID_ARGUMENT" in said
    server.stop(0)


def test_what_grpcs_core_says_by_itself_is_not_heard() -> None:
    program = (
        "from otel_gpu.exporters.otlp.exporter import OtlpExporter\n"
        "from otel_gpu.exporters.otlp.settings import OtlpSettings\n"
        "from otel_gpu.exporters.delivery.payload import Payload\n"
        "e = OtlpExporter(OtlpSettings(endpoint='http://127.0.0.1:1', timeout_s=1))\n"
        "e.submit('metrics', Payload(b'', 1, 0)); e.shutdown(1)\n"
    )
    environ = {**os.environ, "http_proxy": f"htt p://me:{SECRET}@bad", "grpc_proxy": f"htt p://me:{SECRET}@bad"}

    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)

    assert SECRET not in done.stderr


def test_doctor_shows_an_endpoint_without_its_query() -> None:
    settings = OtlpSettings(endpoint=f"http://127.0.0.1:1/?key={SECRET}", protocol="http/protobuf")

    checks = list(check_host(Config(exporters={"otlp": settings})))

    assert any(check.check == "endpoint otlp" for check in checks)
    assert not any(SECRET in f"{check.detail} {check.fix}" for check in checks)
