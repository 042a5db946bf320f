from __future__ import annotations

import json
import logging
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2

from otel_gpu import __version__
from otel_gpu.errors import ConfigError
from otel_gpu.exporters.delivery.payload import Payload
from otel_gpu.exporters.delivery.settings import RetrySettings
from otel_gpu.exporters.fan_out import spans_to
from otel_gpu.exporters.otlp.exporter import OtlpExporter
from otel_gpu.exporters.otlp.responses import not_taken
from otel_gpu.exporters.otlp.settings import OtlpSettings
from otel_gpu.runtime.supervision import Component
from otel_gpu.signals.metrics import Instrument, Measurement, MetricSpec, Resource, SeriesStore, attributes
from tests.stopwatch import Stopwatch
from tests.unit.otlp_sinks import Sink, serve_grpc, serve_http
from tests.unit.span_examples import request
from tests.waiting import until

FAST = RetrySettings(initial_interval_s=0.01, max_interval_s=0.02, max_elapsed_time_s=5)
ONCE = RetrySettings(enabled=False)
CALLS = MetricSpec("calls", "{call}", Instrument.COUNTER, "Calls.")
PROCESS = Resource(attributes({"service.name": "train"}))


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")


def store_of(n: int) -> SeriesStore:
    store = SeriesStore()
    store.fold([Measurement(PROCESS, CALLS, attributes(k=f"k{i}"), i) for i in range(n)], 1)
    return store


@pytest.fixture
def grpc_sink() -> Iterator[Sink]:
    sink = Sink()
    server = serve_grpc(sink)
    yield sink
    server.stop(0)


@pytest.fixture
def http_sink() -> Iterator[Sink]:
    sink = Sink()
    server = serve_http(sink)
    yield sink
    server.shutdown()
    server.server_close()


@pytest.fixture(params=["grpc", "http/protobuf"])
def sink_and_settings(request: pytest.FixtureRequest) -> tuple[Sink, OtlpSettings]:
    sink = request.getfixturevalue("grpc_sink" if request.param == "grpc" else "http_sink")
    return sink, OtlpSettings(endpoint=sink.url, protocol=request.param, retry=FAST, timeout_s=5)


def export(settings: OtlpSettings, store: SeriesStore, timeout_s: float = 5) -> OtlpExporter:
    exporter = OtlpExporter(settings)
    exporter.export_metrics(store, 2)
    exporter.shutdown(timeout_s)
    return exporter


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_every_point_arrives_with_our_headers(sink_and_settings: tuple[Sink, OtlpSettings], compression) -> None:
    sink, settings = sink_and_settings

    exporter = export(replace(settings, compression=compression, headers=(("X-Tenant", "a b"),)), store_of(50))

    assert sink.points() == list(range(50))
    assert exporter.stats().sent_points == 50
    assert sink.headers[0]["x-tenant"] == "a b"
    assert sink.headers[0]["user-agent"].startswith(f"otel-gpu/{__version__}")


def test_large_store_goes_in_several_requests(sink_and_settings: tuple[Sink, OtlpSettings]) -> None:
    sink, settings = sink_and_settings

    export(replace(settings, max_request_bytes=2_000), store_of(300))

    assert len(sink.requests) > 5
    assert sink.points() == list(range(300))


def test_each_signal_goes_to_its_own_service(grpc_sink: Sink, http_sink: Sink) -> None:
    for sink, protocol in ((grpc_sink, "grpc"), (http_sink, "http/protobuf")):
        exporter = OtlpExporter(OtlpSettings(endpoint=sink.url, protocol=protocol))
        exporter.submit("traces", Payload(b"", 1, 0))
        exporter.submit("profiles", Payload(b"", 2, 0))
        exporter.shutdown(5)
        assert exporter.stats().sent_points == 3

    assert sorted(grpc_sink.paths) == ["ExportProfilesServiceRequest", "ExportTraceServiceRequest"]
    assert sorted(http_sink.paths) == ["/v1/traces", "/v1development/profiles"]
    for sink in (grpc_sink, http_sink):
        versions = [h.get("otlp-profiles-development-version") for h in sink.headers]
        assert sorted(versions, key=str) == ["1", None]


@pytest.mark.parametrize(
    "code",
    ["CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"],
)
def test_grpc_status_that_the_specification_calls_retryable_is_retried(grpc_sink: Sink, code: str) -> None:
    grpc_sink.answers = [(grpc.StatusCode[code], None)]

    exporter = export(OtlpSettings(endpoint=grpc_sink.url, retry=FAST), store_of(3))

    assert (exporter.stats().retries, exporter.stats().sent_points) == (1, 3)


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "UNAUTHENTICATED", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED"])
def test_other_grpc_status_is_final(grpc_sink: Sink, code: str) -> None:
    grpc_sink.answers = [(grpc.StatusCode[code], None)]

    stats = export(OtlpSettings(endpoint=grpc_sink.url, retry=FAST), store_of(3)).stats()

    assert (stats.retries, stats.failed_points) == (0, 3)
    # What a Collector lacks is said behind it.
    assert str(stats.last_error).partition("; ")[0] == f"gRPC {code}: told to"


def test_resource_exhausted_with_retry_info_is_retried_after_its_delay(grpc_sink: Sink) -> None:
    delay = duration_pb2.Duration(nanos=80_000_000).SerializeToString()
    info = any_pb2.Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=bytes([10, len(delay)]) + delay)
    detail = info.SerializeToString()
    grpc_sink.answers = [(grpc.StatusCode.RESOURCE_EXHAUSTED, bytes([8, 8, 26, len(detail)]) + detail)]

    began = time.monotonic()
    stats = export(OtlpSettings(endpoint=grpc_sink.url, retry=FAST), store_of(3)).stats()

    assert (stats.retries, stats.sent_points) == (1, 3)
    assert time.monotonic() - began >= 0.08


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_http_status_that_the_specification_calls_retryable_is_retried(http_sink: Sink, status: int) -> None:
    http_sink.answers = [(status, {"Retry-After": "0"}, b"")]

    stats = export(OtlpSettings(endpoint=http_sink.url, protocol="http/protobuf", retry=FAST), store_of(3)).stats()

    assert (stats.retries, stats.sent_points) == (1, 3)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((400, {}, b"\x12\x07no good"), "HTTP 400 Bad Request: no good"),
        (
            (404, {"Content-Type": "text/plain"}, b"404 page\nnot found"),
            f"HTTP 404 Not Found: 404 page not found; {not_taken('metrics')}",
        ),
        ((500, {}, b""), "HTTP 500 Internal Server Error"),
        (
            (308, {"Location": "https://elsewhere/"}, b""),
            "HTTP 308 Permanent Redirect: redirected to https://elsewhere/; set the endpoint to where it really is",
        ),
    ],
)
def test_other_http_status_is_final_and_explained(http_sink: Sink, answer: object, reason: str) -> None:
    http_sink.answers = [answer]

    stats = export(OtlpSettings(endpoint=http_sink.url, protocol="http/protobuf", retry=FAST), store_of(3)).stats()

    assert (stats.retries, stats.failed_points, stats.last_error) == (0, 3, reason)


def test_partial_success_is_read_and_said_once(
    sink_and_settings: tuple[Sink, OtlpSettings], caplog: pytest.LogCaptureFixture
) -> None:
    sink, settings = sink_and_settings
    answer = metrics_service_pb2.ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = 2
    answer.partial_success.error_message = "too old"
    sink.answers = [answer if settings.protocol == "grpc" else (200, {}, answer.SerializeToString()) for _ in range(3)]
    caplog.set_level(logging.INFO)
    exporter = OtlpExporter(settings)

    for _ in range(3):
        exporter.export_metrics(store_of(10), 2)
    exporter.shutdown(5)

    assert (exporter.stats().sent_points, exporter.stats().rejected_points, exporter.stats().retries) == (24, 6, 0)
    assert [r.getMessage().split(": ", 1)[1] for r in caplog.records] == ["the receiver rejected 2 points: too old"]


def test_answer_that_is_not_otlp_is_success_with_a_warning(http_sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    http_sink.answers = [(200, {"Content-Type": "text/html"}, b"<html>" + b"x" * 200_000)]

    stats = export(OtlpSettings(endpoint=http_sink.url, protocol="http/protobuf"), store_of(3)).stats()

    assert stats.sent_points == 3
    assert "is this an OTLP endpoint?" in caplog.text


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_endpoint_that_refuses_is_a_clear_reason(protocol) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    stats = export(OtlpSettings(endpoint=f"127.0.0.1:{port}", protocol=protocol, retry=ONCE), store_of(3)).stats()

    assert stats.failed_points + stats.dropped_points == 3
    assert "refused" in str(stats.last_error)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_endpoint_that_hangs_blocks_neither_export_nor_shutdown(protocol) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=5) as silent:
        endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
        exporter = OtlpExporter(OtlpSettings(endpoint=endpoint, protocol=protocol, timeout_s=30))
        store = store_of(10)

        watch = Stopwatch()
        for now in range(20):
            exporter.export_metrics(store, now)
        exported = watch.seconds()
        exporter.shutdown(0.1)

        assert exported < 0.5
        assert watch.seconds() < 2
        assert exporter.stats().dropped_points + exporter.stats().failed_points == 200


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, by the openssl command."""
    return _make_certificate(tmp_path_factory.mktemp("tls"))


def _make_certificate(at: Path) -> Path:
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1,DNS:other.name"),
            *("-keyout", at / "key.pem", "-out", at / "cert.pem"),
        ],
        check=False,
        capture_output=True,
    )
    if made.returncode:
        pytest.skip("the openssl command cannot make a certificate")
    return at


def _serve_tls(sink: Sink, protocol: str, certificates: Path, port: int = 0) -> Callable[[], None]:
    """Start a receiver that wants a client certificate too, and return what stops it."""
    cert, key = certificates / "cert.pem", certificates / "key.pem"
    if protocol == "grpc":
        pair = key.read_bytes(), cert.read_bytes()
        server = serve_grpc(sink, grpc.ssl_server_credentials([pair], cert.read_bytes(), True), port)
        return lambda: server.stop(0).wait() and None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=cert)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(cert, key)
    web = serve_http(sink, context, port)

    def stop() -> None:
        web.shutdown()
        web.server_close()

    return stop


@pytest.fixture(params=["grpc", "http/protobuf"])
def tls_sink(request: pytest.FixtureRequest, certificates: Path) -> Iterator[tuple[Sink, OtlpSettings]]:
    """A receiver that wants a client certificate too."""
    sink = Sink()
    cert, key = certificates / "cert.pem", certificates / "key.pem"
    stop = _serve_tls(sink, request.param, certificates)
    yield (
        sink,
        OtlpSettings(
            endpoint=sink.url, protocol=request.param, retry=FAST, cert_file=str(cert), key_file=str(key), timeout_s=5
        ),
    )
    stop()


def test_tls_with_own_authority_and_client_certificate(tls_sink: tuple[Sink, OtlpSettings]) -> None:
    sink, settings = tls_sink

    stats = export(replace(settings, ca_file=settings.cert_file), store_of(3)).stats()

    assert (stats.sent_points, stats.last_error) == (3, None)
    assert len(sink.requests) == 1


def test_certificate_of_an_unknown_authority_is_refused(tls_sink: tuple[Sink, OtlpSettings]) -> None:
    sink, settings = tls_sink

    stats = export(replace(settings, retry=ONCE), store_of(3)).stats()

    assert stats.sent_points == 0
    assert "certificate" in str(stats.last_error).lower()
    assert sink.requests == []


class Rotated:
    """Certificates in files that the exporter has open, and a receiver that has changed to others."""

    def __init__(self, protocol: str, directory: Path, retry: RetrySettings) -> None:
        self.old, self.new, self.used = (directory / name for name in ("old", "new", "used"))
        for one in (self.old, self.new, self.used):
            one.mkdir()
        for one in (self.old, self.new):
            _make_certificate(one)
        self.sink = Sink()
        self.put("cert.pem", (self.old / "cert.pem").read_bytes())
        self.put("key.pem", (self.old / "key.pem").read_bytes())
        stop = _serve_tls(self.sink, protocol, self.old)
        if protocol != "grpc":
            self.sink.answers = [(200, {"Connection": "close"}, b"")]
        files = {"ca_file": "cert.pem", "cert_file": "cert.pem", "key_file": "key.pem"}
        self.exporter = OtlpExporter(
            OtlpSettings(
                endpoint=self.sink.url,
                protocol=protocol,
                retry=retry,
                timeout_s=5,
                **{setting: str(self.used / name) for setting, name in files.items()},
            )
        )
        self.exporter.export_metrics(store_of(3), 1)
        until(lambda: self.exporter.stats().sent_points == 3)
        stop()
        self.stop = _serve_tls(self.sink, protocol, self.new, int(self.sink.url.rpartition(":")[2]))

    def put(self, name: str, content: bytes) -> None:
        (self.used / name).write_bytes(content)

    def __enter__(self) -> Rotated:
        return self

    def __exit__(self, *_: object) -> None:
        self.exporter.shutdown(5)
        self.stop()


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_certificates_that_were_exchanged_are_used(protocol, tmp_path: Path) -> None:
    with Rotated(protocol, tmp_path, ONCE) as rotated:
        for name in ("cert.pem", "key.pem"):
            rotated.put(name, (rotated.new / name).read_bytes())
        rotated.exporter.export_metrics(store_of(3), 2)
        until(lambda: not rotated.exporter.stats().queued_points)

        assert rotated.exporter.stats().last_error is None
        assert rotated.exporter.stats().sent_points == 6


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_certificates_are_awaited_that_are_old_or_half_written_or_missing(protocol, tmp_path: Path) -> None:
    def failed_once_more() -> None:
        before = rotated.exporter.stats().retries
        until(lambda: rotated.exporter.stats().retries > before + 1)

    with Rotated(protocol, tmp_path, replace(FAST, max_elapsed_time_s=60)) as rotated:
        cert, key = ((rotated.new / name).read_bytes() for name in ("cert.pem", "key.pem"))
        rotated.exporter.export_metrics(store_of(3), 2)
        failed_once_more()
        for half in (b"", cert[:20], cert[:200]):
            rotated.put("cert.pem", half)
            failed_once_more()
        (rotated.used / "cert.pem").unlink()
        failed_once_more()
        rotated.put("cert.pem", cert)
        failed_once_more()
        rotated.put("key.pem", key[:100])
        failed_once_more()
        rotated.put("key.pem", key)
        until(lambda: not rotated.exporter.stats().queued_points)

        assert rotated.exporter.stats().last_error is None
        assert rotated.exporter.stats().sent_points == 6


def test_a_connection_over_grpc_outlasts_a_certificate_that_is_missing(certificates: Path, tmp_path: Path) -> None:
    sink = Sink()
    stop = _serve_tls(sink, "grpc", certificates)
    files = {name: tmp_path / name for name in ("cert.pem", "key.pem")}
    for name, path in files.items():
        path.write_bytes((certificates / name).read_bytes())
    cert, key = map(str, files.values())
    exporter = OtlpExporter(OtlpSettings(endpoint=sink.url, retry=ONCE, ca_file=cert, cert_file=cert, key_file=key))

    exporter.export_metrics(store_of(3), 1)
    until(lambda: exporter.stats().sent_points == 3)
    files["cert.pem"].unlink()
    exporter.export_metrics(store_of(3), 2)
    exporter.shutdown(10)
    stop()

    assert (exporter.stats().sent_points, exporter.stats().last_error) == (6, None)


def test_verification_can_be_skipped_on_request_over_http(certificates: Path) -> None:
    sink = Sink()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    server = serve_http(sink, context)

    settings = OtlpSettings(endpoint=sink.url, protocol="http/protobuf", insecure_skip_verify=True)
    assert export(settings, store_of(3)).stats().sent_points == 3
    server.shutdown()
    server.server_close()


def test_verification_can_be_skipped_on_request_over_grpc(certificates: Path) -> None:
    sink = Sink()
    pair = (certificates / "key.pem").read_bytes(), (certificates / "cert.pem").read_bytes()
    server = serve_grpc(sink, grpc.ssl_server_credentials([pair]))

    assert export(OtlpSettings(endpoint=sink.url, insecure_skip_verify=True), store_of(3)).stats().sent_points == 3
    server.stop(0)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("setting", ["ca_file", "cert_file"])
def test_certificate_file_that_cannot_be_read_is_a_configuration_error(protocol, setting: str, tmp_path: Path) -> None:
    not_pem = tmp_path / "not.pem"
    not_pem.write_text("hello")

    for path in ("/nowhere/ca.pem", str(not_pem)):
        with pytest.raises(ConfigError, match=setting):
            OtlpExporter(replace(OtlpSettings(endpoint="https://h", protocol=protocol), **{setting: path}))


def test_requests_go_as_json_when_asked_to(http_sink: Sink) -> None:
    settings = OtlpSettings(endpoint=http_sink.url, protocol="http/json", compression="none")
    exporter = OtlpExporter(settings)
    exporter.export_metrics(store_of(3), 2)
    spans_to([exporter], Component("traces")).export([request(1)])
    exporter.shutdown(5)

    bodies = {path: json.loads(body) for path, body in zip(http_sink.paths, http_sink.bodies, strict=True)}
    [metric] = bodies["/v1/metrics"]["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    assert [point["asInt"] for point in metric["sum"]["dataPoints"]] == ["0", "1", "2"]
    [span] = bodies["/v1/traces"]["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert span["spanId"] == request(1).context.span_id.hex()
    assert {headers["content-type"] for headers in http_sink.headers} == {"application/json"}


@pytest.mark.parametrize(
    ("answer", "rejected"),
    [
        (b'{"partialSuccess": {"rejectedDataPoints": "2", "errorMessage": "too old"}}', 2),
        (b'{"partialSuccess": {"rejectedDataPoints": 2, "errorMessage": "too old"}}', 2),
        (b'{"partialSuccess": {"rejectedDataPoints": ' + b"9" * 50 + b"}}", 3),
        (b'{"partialSuccess": {"rejectedDataPoints": ' + b"9" * 5_000 + b"}}", 0),
        (b'{"partialSuccess": {"rejectedDataPoints": -1, "errorMessage": ["x"]}}', 0),
        (b'{"partialSuccess": null}', 0),
        (b'{"partialSuccess": 5}', 0),
        (b"[" * 60_000, 0),
        (b"\xff", 0),
        (b"{}", 0),
        (b"", 0),
    ],
)
def test_an_answer_in_json_is_read_with_suspicion(http_sink: Sink, answer: bytes, rejected: int) -> None:
    http_sink.answers = [(200, {"Content-Type": "application/json"}, answer)]

    stats = export(OtlpSettings(endpoint=http_sink.url, protocol="http/json"), store_of(3)).stats()

    assert (stats.rejected_points, stats.sent_points) == (rejected, 3 - rejected)


def test_grpc_has_no_zstandard() -> None:
    with pytest.raises(ConfigError, match="gRPC has no zstd"):
        OtlpSettings(compression="zstd")


_QUIET = """
import ctypes
import os

getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
before = dict(os.environ)
from otel_gpu.runtime.quiet_grpc import grpc

assert dict(os.environ) == before, set(os.environ.items()) ^ set(before.items())
assert (getenv(b"GRPC_VERBOSITY") or b"").decode() == before.get("GRPC_VERBOSITY", "")
os.environ["grpc_proxy"] = "ftp://user:secret@host:1"
try:
    grpc.insecure_channel("127.0.0.1:9").unary_unary("/a/b")(b"", timeout=5)
except grpc.RpcError as error:
    print(error.code().name)
"""


@pytest.mark.parametrize(("verbosity", "is_quiet"), [(None, True), ("", True), ("ERROR", False)])
def test_grpc_writes_nothing_and_the_environment_of_the_program_stays(verbosity: str | None, is_quiet: bool) -> None:
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GRPC_") and not name.lower().endswith("_proxy")
    }
    if verbosity is not None:
        environ["GRPC_VERBOSITY"] = verbosity

    done = subprocess.run(
        [sys.executable, "-c", _QUIET],
        env=environ,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "UNAVAILABLE\n", done.stderr
    assert (done.stderr == "") == is_quiet
