from __future__ import annotations

import contextlib
import gzip
import http.client
import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import grpc
import pytest
import zstandard

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from otel_gpu.cli import main
from otel_gpu.errors import ConfigError, OtelGpuError
from otel_gpu.view import client_deadlines
from otel_gpu.view.losses import Reason
from otel_gpu.view.server import View
from otel_gpu.view.settings import Bounds, ViewSettings
from tests.unit.view_requests import NS, Metrics
from tests.waiting import until

_BOUNDS = replace(Bounds(), body_bytes=100_000, json_bytes=50_000)
_PROTOBUF, _JSON = {"Content-Type": "application/x-protobuf"}, {"Content-Type": "application/json"}
_METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_TOKEN = "secret-of-the-view"


@pytest.fixture(scope="module")
def view() -> Iterator[View]:
    with View(ViewSettings(port=0, grpc_port=0, bounds=_BOUNDS)) as running:
        yield running


@pytest.fixture(scope="module")
def locked() -> Iterator[View]:
    with View(ViewSettings(port=0, grpc_port=0, token=_TOKEN)) as running:
        yield running


def ask(
    view: View, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", view.port, timeout=20)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    found = answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
    connection.close()
    return found


def launches(value: int = 5, pid: int = 7) -> Metrics:
    now = time.time_ns()
    return Metrics(pid=pid).counter("gpu.cuda.kernel.launch.calls", value, now - NS, now, cuda__kernel__name="gemm")


def total(view: View) -> int:
    return json.loads(ask(view, "GET", "/api/gpu")[1])["launches"]["total"]


def counted(view: View, reason: Reason) -> int:
    return next((loss.count for loss in view.store.losses.all() if loss.reason is reason), 0)


def _in_parts(compress: Callable[[bytes], bytes], data: bytes) -> bytes:
    return b"".join(compress(data[at : at + 40]) for at in range(0, len(data), 40))


_PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "gzip ": partial(_in_parts, gzip.compress),
    "GZIP": lambda data: gzip.compress(data) + bytes(40),
    "zstd": zstandard.ZstdCompressor().compress,
    "zstd ": partial(_in_parts, zstandard.ZstdCompressor().compress),
}


@pytest.mark.parametrize("encoding", _PACKED)
def test_protobuf_is_taken_however_it_is_packed(view: View, encoding: str) -> None:
    before = total(view)
    body = _PACKED[encoding](launches(pid=100 + list(_PACKED).index(encoding)).request.SerializeToString())

    status, answer, headers = ask(view, "POST", "/v1/metrics", body, {**_PROTOBUF, "Content-Encoding": encoding})

    assert (status, answer, headers["content-type"]) == (200, b"", "application/x-protobuf")
    assert total(view) == before + 5


def test_json_is_taken_with_its_ids_in_hex(view: View) -> None:
    now = time.time_ns()
    span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "GET /", "kind": 2, "startTimeUnixNano": str(now),
            "endTimeUnixNano": str(now + 5_000_000)}  # fmt: skip
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "js"}}]}
    body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span], "unknown": 1}]}]}

    status, answer, _ = ask(view, "POST", "/v1/traces", json.dumps(body).encode(), _JSON)

    assert (status, json.loads(answer)) == (200, {})
    found = json.loads(ask(view, "GET", f"/api/traces/{'ab' * 16}")[1])
    assert [(s["name"], s["process"], s["duration"]) for s in found["spans"]] == [("GET /", "js", 0.005)]


_BOMB = b"\0" * (_BOUNDS.body_bytes + 1)


@pytest.mark.parametrize(
    "body, headers, status, reason",
    [
        (b"\xff\xff", _PROTOBUF, 400, Reason.MALFORMED),
        (b"[1]", _JSON, 400, Reason.MALFORMED),
        (b'{"resourceMetrics":{"a":3}}', _JSON, 400, Reason.MALFORMED),
        (b"[" * 20_000, _JSON, 400, Reason.MALFORMED),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"xy"}]}]}]}', _JSON, 400, Reason.MALFORMED),
        (b" " * (_BOUNDS.json_bytes + 1), _JSON, 413, Reason.TOO_LARGE),
        (_BOMB, _PROTOBUF, 413, Reason.TOO_LARGE),
        (gzip.compress(_BOMB), {**_PROTOBUF, "Content-Encoding": "gzip"}, 413, Reason.TOO_LARGE),
        (zstandard.compress(_BOMB), {**_PROTOBUF, "Content-Encoding": "zstd"}, 413, Reason.TOO_LARGE),
        (gzip.compress(_BOMB[:50_000]) * 3, {**_PROTOBUF, "Content-Encoding": "gzip"}, 413, Reason.TOO_LARGE),
        (gzip.compress(b"") * 1000, {**_PROTOBUF, "Content-Encoding": "gzip"}, 413, Reason.TOO_LARGE),
        (zstandard.compress(_BOMB[:50_000]) * 3, {**_PROTOBUF, "Content-Encoding": "zstd"}, 413, Reason.TOO_LARGE),
        (gzip.compress(b"abc") + b"no gzip", {**_PROTOBUF, "Content-Encoding": "gzip"}, 400, Reason.MALFORMED),
        (gzip.compress(b"abc") * 2 + b"\x1f\x8b", {**_PROTOBUF, "Content-Encoding": "gzip"}, 400, Reason.MALFORMED),
        (b"no gzip", {**_PROTOBUF, "Content-Encoding": "gzip"}, 400, Reason.MALFORMED),
        (gzip.compress(b"abc")[:-6], {**_PROTOBUF, "Content-Encoding": "gzip"}, 400, Reason.MALFORMED),
        (b"no zstd", {**_PROTOBUF, "Content-Encoding": "zstd"}, 400, Reason.MALFORMED),
        (b"", {**_PROTOBUF, "Content-Encoding": "br"}, 415, Reason.NOT_UNDERSTOOD),
        (b"", {"Content-Type": "text/plain"}, 415, Reason.NOT_UNDERSTOOD),
        (b"", {**_PROTOBUF, "Origin": "http://evil.example"}, 403, Reason.NOT_ALLOWED),
        (b"", {**_PROTOBUF, "Sec-Fetch-Site": "cross-site"}, 403, Reason.NOT_ALLOWED),
        (b"", {**_PROTOBUF, "Host": "evil.example"}, 403, Reason.NOT_ALLOWED),
    ],
    # What is packed holds the time, and both runners of tests have to call a test alike.
    ids=itertools.count(),
)  # fmt: skip
def test_what_is_not_taken_says_so_and_is_counted(
    view: View, body: bytes, headers: dict[str, str], status: int, reason: Reason
) -> None:
    before, kept = counted(view, reason), total(view)

    assert ask(view, "POST", "/v1/metrics", body, headers)[0] == status

    assert counted(view, reason) == before + 1
    assert total(view) == kept


@pytest.mark.parametrize("path", ["/", "/api/state", "/api/gpu", "/flame?process=1&type=x&window=0-1"])
@pytest.mark.parametrize("headers", [{"Host": "evil.example:4318"}, {"Origin": "null"}, {"Origin": "http://["}])
def test_nothing_is_shown_to_other_sites(view: View, path: str, headers: dict[str, str]) -> None:
    assert ask(view, "GET", path, headers=headers)[0] == 403


def test_a_page_may_be_gone_to_from_a_link_and_runs_no_script_of_its_own(view: View) -> None:
    status, page, headers = ask(view, "GET", "/", headers={"Sec-Fetch-Site": "cross-site"})

    assert status == 200
    assert b"<script>" not in page
    assert "'unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert ask(view, "GET", "/api/gpu", headers={"Sec-Fetch-Site": "cross-site"})[0] == 403


@pytest.mark.parametrize(
    "path, status",
    [
        ("/api/gpu?seconds=nan", 400), ("/api/gpu?seconds=-1", 400), ("/api/gpu?process=x", 400), ("/api/traces/zz", 400),
        ("/api/traces/" + "0" * 32, 404), ("/assets/../view.html", 404), ("/assets/view.html", 404), ("/nothing", 404),
        ("/flame?process=1&type=a&window=1", 400), ("/flame?process=999&type=a&window=1-2", 404),
        ("/flame?process=1&type=a&window=nan-inf", 400), ("/api/requests?offset=x", 400), ("/v1/metrics", 405),
    ],
)  # fmt: skip
def test_questions_that_have_no_answer(view: View, path: str, status: int) -> None:
    assert ask(view, "GET", path)[0] == status


def test_a_token_is_asked_for_everywhere(locked: View) -> None:
    body = launches().request.SerializeToString()
    right = {"Authorization": f"Bearer {_TOKEN}"}

    for wrong in (
        {},
        {"Authorization": "Bearer other"},
        {"Authorization": f"Basic {_TOKEN}"},
        {"Cookie": "otel_gpu_view=no"},
    ):
        assert ask(locked, "POST", "/v1/metrics", body, {**_PROTOBUF, **wrong})[0] == 401
        assert ask(locked, "GET", "/api/gpu", headers=wrong)[0] == 401
        assert ask(locked, "GET", "/", headers=wrong)[0] == 401
    assert ask(locked, "POST", "/v1/metrics", body, {**_PROTOBUF, **right})[0] == 200
    assert ask(locked, "GET", "/api/gpu", headers={**right, "Host": "gpu-host.example"})[0] == 200


def test_a_person_gives_the_token_once(locked: View) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}

    status, page, _ = ask(locked, "POST", "/login", b"token=wrong", form)
    assert status == 401
    assert b"not the token" in page
    status, _, headers = ask(locked, "POST", "/login", f"token={_TOKEN}".encode(), form)

    assert status == 303
    assert "HttpOnly" in headers["set-cookie"]
    assert "samesite=strict" in headers["set-cookie"].lower()
    assert ask(locked, "GET", "/api/state", headers={"Cookie": headers["set-cookie"].split(";")[0]})[0] == 200


def _call(
    view: View, body: bytes, token: str = "", compression: grpc.Compression = grpc.Compression.Gzip
) -> grpc.StatusCode:
    with grpc.insecure_channel(f"127.0.0.1:{view.grpc_port}") as channel:
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        try:
            channel.unary_unary(_METHOD)(body, metadata=metadata, timeout=20, compression=compression)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def test_grpc_says_what_it_does_not_take(view: View, locked: View) -> None:
    before, body = total(view), launches(pid=200).request.SerializeToString()

    assert _call(view, b"\xff\xff") is grpc.StatusCode.INVALID_ARGUMENT
    assert _call(view, _BOMB) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert _call(locked, body) is grpc.StatusCode.UNAUTHENTICATED
    assert _call(locked, body, "wrong") is grpc.StatusCode.UNAUTHENTICATED
    assert _call(locked, body, _TOKEN) is grpc.StatusCode.OK
    assert _call(view, body) is grpc.StatusCode.OK
    assert total(view) == before + 5


def test_a_port_in_use_is_one_line(capsys: pytest.CaptureFixture[str], view: View) -> None:
    assert main(["view", "--port", str(view.port), "--grpc-port", "0"]) == 1
    assert main(["view", "--port", "0", "--grpc-port", str(view.grpc_port)]) == 1

    http_line, grpc_line = capsys.readouterr().err.splitlines()
    assert f":{view.port}" in http_line
    assert "--port" in http_line
    assert f":{view.grpc_port}" in grpc_line
    assert "--grpc-port" in grpc_line


def test_a_grpc_port_that_somebody_has_at_one_address_of_the_host_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OtelGpuError, match="--grpc-port"):
        View(ViewSettings(port=0, grpc_port=other.getsockname()[1])).start()


def test_nothing_listens_to_others_without_a_token() -> None:
    with pytest.raises(ConfigError, match="--token-file"):
        View(ViewSettings(host="0.0.0.0"))


def test_a_name_of_no_host_is_one_line() -> None:
    with pytest.raises(OtelGpuError, match="address of this host by --host"):
        View(ViewSettings(host="no.such.host.invalid", port=0, token="t")).start()


def test_who_says_nothing_keeps_nobody_from_asking_and_from_stopping() -> None:
    with View(ViewSettings(port=0, grpc_port=0)) as view:
        silent = [socket.create_connection(("127.0.0.1", view.port)) for _ in range(20)]
        assert ask(view, "GET", "/api/state")[0] == 200
    for one in silent:
        one.close()


_ASKED = b"GET /assets/uPlot.iife.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HT",
        _ASKED,
        _ASKED * 400,
        b"POST /v1/metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
    ],
    ids=["nothing", "half a head", "one request", "many requests", "no body"],
)
def test_clients_that_never_read_keep_nobody_from_the_page(said: bytes) -> None:
    with View(ViewSettings(port=0, grpc_port=0)) as view, contextlib.ExitStack() as idle:
        for _ in range(160):
            one = idle.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", view.port))
            one.setblocking(False)
            with contextlib.suppress(OSError):
                one.send(said)
        for path in ("/", "/api/state", "/assets/view.css") * 3:
            assert ask(view, "GET", path)[0] == 200


def test_where_there_is_no_room_a_request_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with View(ViewSettings(port=0, grpc_port=0)) as view:
        assert ask(view, "GET", "/api/state")[0] == 200
        monkeypatch.setattr(client_deadlines, "MAX_OPEN", 0)
        assert ask(view, "GET", "/api/state")[0] == 503


def test_a_client_that_never_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_deadlines, "STALLED_S", 0.2)
    monkeypatch.setattr(client_deadlines, "_LOOK_S", 0.1)
    with View(ViewSettings(port=0, grpc_port=0)) as view, socket.create_connection(("127.0.0.1", view.port)) as one:
        one.settimeout(0.2)
        with contextlib.suppress(OSError):
            one.sendall(_ASKED * 4000)

        def is_given_up() -> bool:
            try:
                return not one.send(b"G")
            except TimeoutError:
                return False
            except OSError:
                return True

        until(is_given_up, "it is waited for still")
